"""Attaches VFs to a sandbox and takes the VFs back: claims, addresses, netdevs, ports, and the journal."""
