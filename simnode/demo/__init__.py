"""`scripts/demo`: pods on two simulated nodes, pings over every network, and what is left over at the end."""
