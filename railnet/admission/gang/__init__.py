"""The reviews about gangs: whether a pod waits for its gang, and whether evictions fail a Job."""
