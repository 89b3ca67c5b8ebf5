"""Host-network mode: what it changes of a pod and of a Service, and the ports that are free."""
