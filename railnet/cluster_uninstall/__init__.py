"""`railnet uninstall --cluster`: all nodes give the runtime back, by their DaemonSets, and the command waits for them.

A Job in the cluster runs it before Railnet's objects are deleted. What one node does is `railnet/install/uninstaller.py`'s.
"""
