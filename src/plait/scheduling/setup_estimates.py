"""What a group's queue asks about residency."""

from typing import Protocol


class SetupEstimates(Protocol):
    def setup_s(self, deployment: str) -> float:
        """0 if the deployment is resident, else the expected time to move others out and to load it from where it is."""
        ...
