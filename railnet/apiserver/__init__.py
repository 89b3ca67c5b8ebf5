"""Railnet's interface to the Kubernetes API server: one client, and the messages that the node daemon sends through it.

`request` is what is asked, `client` sends it and names each failure, a transport carries it: `node_transport` by the standard
library, `kubernetes_package_transport` by the `kubernetes` package, which the node does not have. docs/decisions/0037 says why there
are two.
"""
