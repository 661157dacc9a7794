"""Generations cut into chunks: which goes next, and how many at once."""
