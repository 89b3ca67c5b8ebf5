"""Sockets of this process: what it listens on, and which messages the kernel lets through."""
