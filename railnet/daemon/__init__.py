"""The node daemon: its composition, and what it does besides answering kubelet and the container runtime."""
