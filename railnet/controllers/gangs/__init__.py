"""Gangs placed whole: their pods wait behind a scheduling gate until all of them fit into one domain (docs/decisions/0056)."""
