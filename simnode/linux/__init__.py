"""Linux facilities that a simulated node needs: namespaces, mounts, control groups, inotify, and missing system calls."""
