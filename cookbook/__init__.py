"""Recipes of tinker-cookbook, unmodified and offline, against a `plait serve` of their own: `python -m cookbook.run`."""
