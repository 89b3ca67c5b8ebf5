"""The only code that touches sysfs, netlink and namespaces, and the atomic writes. It acts; it decides nothing."""
