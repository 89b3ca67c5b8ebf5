"""The CNI meta-plugin: `cni.host` is the executable on the node, the rest is the daemon's side of one request."""
