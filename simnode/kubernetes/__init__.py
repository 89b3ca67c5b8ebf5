"""Simulated Kubernetes parts of a node: kubelet, the container runtime, CRI, and an API server."""
