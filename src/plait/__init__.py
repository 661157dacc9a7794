"""Plait: many reinforcement-learning tasks with verifiable rewards on one set of accelerators."""

__version__ = "0.1.0"
