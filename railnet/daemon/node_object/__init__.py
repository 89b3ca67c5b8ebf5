"""Labels, condition and taint of the node's object in the API server, and what decides them."""
