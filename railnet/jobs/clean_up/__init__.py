"""Whether something is deleted when training is over: parameter servers, and idle namespaces."""
