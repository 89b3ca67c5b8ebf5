"""Measurements, one module each: `scripts/bench NAME` runs them (docs/performance.md). In no wheel and no image.

A measurement with many parts has a package beside its module.
"""
