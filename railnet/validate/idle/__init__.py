"""`railnet validate --idle`: which nodes it tries, when it gives way to jobs, and what it says of a node."""
