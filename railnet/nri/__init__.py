"""The node resource interface (NRI): a container runtime asks its plugins about each container that it creates, on a socket.

Railnet uses it for one thing, a container's limit of locked memory. Sources: containerd/nri v0.12.3 and containerd/ttrpc v1.2.9.
"""
