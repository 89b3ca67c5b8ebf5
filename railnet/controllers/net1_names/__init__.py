"""Names on net1: for each job the Services and EndpointSlices whose records lead to its pods' addresses on net1."""
