"""`scripts/demo`: pods on two simulated nodes, pings over each network, and a list of what is left over at the end."""
