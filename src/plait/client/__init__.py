"""Plait from Python: runs, and policies to talk to."""
