"""Access to the machine: sysfs, netlink, namespaces and files on the host. It acts; the callers decide."""
