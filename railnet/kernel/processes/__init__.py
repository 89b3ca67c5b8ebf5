"""Other processes: a function in a forked child, a program of the host, the descriptors that another process holds, the parent's end."""
