"""Places where tensors can be kept."""

from enum import StrEnum


class Tier(StrEnum):
    """From the fastest to the slowest."""

    DEVICE = "device"
    HOST = "host"
    DISK = "disk"

    @property
    def rank(self) -> int:
        """0 is the fastest."""
        return _RANKS[self]


TIERS = tuple(Tier)
_RANKS = {tier: rank for rank, tier in enumerate(TIERS)}
