"""Sockets of this process: a TCP listener, the BPF filters of the kernel's netlink messages and uevents, and whether an address is the node's own."""
