"""What attaches VFs to a sandbox and takes them back: claims, addresses, netdevs, ports, and the journal."""
