"""What the measurements mean: what is wrong with a rail, which rails reach each other, and what to look at next."""
