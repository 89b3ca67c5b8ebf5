"""`railnet validate`: measures each rail between the nodes of a cluster."""
