"""The pods that a job will have, read from its manifest."""
