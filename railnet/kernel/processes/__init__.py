"""Other processes: programs of the host, the parent, and the descriptors of a process."""
