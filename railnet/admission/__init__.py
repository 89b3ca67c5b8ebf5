"""The admission helper: adds to training pods what they need for their rails, and changes no other pod.

One review goes through `review` → `railnet.jobs.recogniser` → `decision` → `patch`: bytes in, bytes out, and no request to another server.
`server` is the HTTPS server with its connections; it also learns the label of the pod's namespace. `certificates` provides the server's
certificate, and `tls` presents it. `explanation` writes a decision in words, `offline` explains the pods of a file. `webhook_scope` selects the
pods that the API server asks about. `gang` has the reviews of gangs. In `host_network`, `host_port_usage` reads the ports of the cluster's
pods, and `host_port_allocator` gives free ones.
"""
