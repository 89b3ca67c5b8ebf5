"""The fabric beyond a VF: ports and their counters, RoCE, the neighbour of a port, and what a node says of its rails. Pure."""
