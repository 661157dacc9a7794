"""Expected times of moving a deployment's state, from those measured: loads by deployment and tier, offloads by deployment. Pure.

What was never measured takes the average of its tier (of all offloads), else `default_s`.
"""

import math

from plait.scheduling.moving_average import MovingAverage
from plait.types.errors import PlaitError

DEFAULT_S = 1.0


class SetupTimes:
    def __init__(self, default_s: float = DEFAULT_S) -> None:
        self._default_s = default_s
        self._averages: dict[tuple[str, ...], MovingAverage] = {}

    def observe_load(self, deployment: str, tier: str, seconds: float) -> None:
        """It came to the device from `tier`."""
        self._observe(("load", tier), ("load", tier, deployment), seconds)

    def observe_offload(self, deployment: str, seconds: float) -> None:
        """It left the device."""
        self._observe(("offload",), ("offload", deployment), seconds)

    def load_s(self, deployment: str, tier: str) -> float:
        return self._estimate(("load", tier, deployment), ("load", tier))

    def offload_s(self, deployment: str) -> float:
        return self._estimate(("offload", deployment), ("offload",))

    def _observe(self, general: tuple[str, ...], particular: tuple[str, ...], seconds: float) -> None:
        if not (math.isfinite(seconds) and seconds >= 0):
            raise PlaitError(f"{' '.join(particular)} took {seconds} s.", "Give measured seconds, 0 or more.")
        for key in (general, particular):
            self._averages.setdefault(key, MovingAverage()).add(seconds)

    def _estimate(self, *keys: tuple[str, ...]) -> float:
        return next((self._averages[key].value for key in keys if key in self._averages), self._default_s)
