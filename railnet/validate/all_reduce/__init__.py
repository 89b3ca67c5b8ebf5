"""The all-reduce over each rail: the program of a rank, its run, and what the results mean."""
