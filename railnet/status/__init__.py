"""`railnet status`: what the daemon reports of its node, and how the command line prints the report."""
