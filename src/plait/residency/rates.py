"""How fast each way between two tiers is: moving averages of what was measured. Pure."""

from plait.residency.tier import Tier

Route = tuple[Tier, Tier]
SMOOTHING = 0.3
"""Weight of the newest move."""
FIXED_BYTES = 4 << 20
"""A small move counts as one of so many bytes: what it takes says more about its overhead than about the way's speed."""
FIRST_BYTES_PER_S: dict[Tier, float] = {Tier.HOST: 2e9, Tier.DISK: 5e8}
"""Assumed until something has moved, by the slower of the two tiers."""


class TransferRates:
    def __init__(self) -> None:
        self._s_per_byte: dict[Route, float] = {}

    def observe(self, route: Route, num_bytes: int, spent_s: float) -> None:
        if not num_bytes:
            return
        measured = spent_s / max(num_bytes, FIXED_BYTES)
        before = self._s_per_byte.get(route, measured)
        self._s_per_byte[route] = before + SMOOTHING * (measured - before)

    def estimate_s(self, route: Route, num_bytes: int) -> float:
        """0 for nothing to move."""
        slower = max(route, key=lambda tier: tier.rank)
        rate = self._s_per_byte.get(route, 1 / FIRST_BYTES_PER_S[slower])
        return rate * max(num_bytes, FIXED_BYTES) if num_bytes else 0.0
