"""`railnet doctor`: what is wrong with this node, what it means, and what to do."""
