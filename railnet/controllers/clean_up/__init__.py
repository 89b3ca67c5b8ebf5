"""Deletes what is left when training is over: the parameter servers of finished jobs, and training namespaces in which nothing goes on."""
