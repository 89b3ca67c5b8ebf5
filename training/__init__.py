"""What a training job's pod is: the operator that made it, its job, its role and rank, and which of its containers trains.

Pure: a pod in, a value out. No I/O, no clock, no log, and no question to the API server: what a pod does not say about
itself is not known here. `operators` is the one table; `recogniser` reads it. Whether a pod gets a rail is decided in `admission`.
"""
