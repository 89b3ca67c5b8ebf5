"""`railnet plan`: proposes the chart's values from what the nodes report, and says what was seen and what was assumed."""
