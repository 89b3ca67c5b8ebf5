"""Measurements, one module each: `scripts/bench NAME` runs them (docs/performance.md). In no wheel and no image."""
