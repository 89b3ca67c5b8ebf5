"""The daemon as a process: one on each node, its supervisor, its threads and tasks, and the modules that it imports late."""
