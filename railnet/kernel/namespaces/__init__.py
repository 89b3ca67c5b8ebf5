"""Network namespaces: one, all of the host, and the VFs' netdevs that were left in them."""
