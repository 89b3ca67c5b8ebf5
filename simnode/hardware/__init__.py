"""Simulated InfiniBand cards: PFs, VFs, the sysfs tree, character devices, netdevs, and the fabric behind the ports."""
