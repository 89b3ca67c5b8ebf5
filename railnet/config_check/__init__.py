"""`railnet config check`: what is wrong with a node configuration or with the chart's values, each with its line and its key."""
