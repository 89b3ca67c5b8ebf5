"""The gangs of `scripts/bench gangs-beside-kueue`, and what became of them. Pure: no clock, no API server."""
