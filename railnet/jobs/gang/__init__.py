"""A pod's gang: what its labels and annotations say of it, who places it, and how a cluster's gangs stand."""
