"""Reads a training job's pod: the operator that made it, its job, role and rank, and the container that trains.

Pure: a pod in, a value out. No I/O, no clock, no log, and no request to the API server, so only facts that the pod itself contains.
`operators` is the table of operators, and `recogniser` reads it. `admission` decides whether a pod gets a rail.
"""
