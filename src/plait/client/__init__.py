"""Plait from Python: runs, and policies to talk to."""

from plait.client.policies import Policy, export_policy, open_policy
from plait.client.run import Run

__all__ = ["Policy", "Run", "export_policy", "open_policy"]
