"""PFs, VFs and PCI bridges in sysfs: what a folder there says, and the few files that are written."""
