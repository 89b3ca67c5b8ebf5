"""A simulated cluster in which gangs arrive, wait, run and end: it compares policies of placement, and judges them.

Nodes, leaf switches, arrivals and the kube-scheduler are simulated here. The planner is the real one (`railnet.gangs.placement`); the policies it
is compared with are models of a few lines. A run is determined by its seed.
"""
