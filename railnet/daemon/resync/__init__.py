"""When the node's VFs are read again, and what watches ports and rails meanwhile."""
