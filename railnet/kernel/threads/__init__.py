"""Threads with a bound: work on a card that may never return costs that card alone."""
