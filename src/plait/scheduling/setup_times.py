"""Expected times of moving a deployment's state, from those measured: loads by deployment and tier, offloads by deployment. Pure.

What was never measured takes the average of its tier (of all offloads), else `default_s`.
"""

import math

from plait.scheduling.moving_average import MovingAverage
from plait.types.errors import PlaitError

DEFAULT_S = 1.0


class SetupTimes:
    """`default_s` is expected of each move until any of its kind was measured."""

    def __init__(self, default_s: float = DEFAULT_S) -> None:
        self._default_s = default_s
        self._loads: dict[tuple[str, str], MovingAverage] = {}
        """(Tier, deployment) -> seconds; under "", over all deployments."""
        self._offloads: dict[str, MovingAverage] = {}
        """Deployment -> seconds; under "", over all."""

    def observe_load(self, deployment: str, tier: str, seconds: float) -> None:
        """It came to the device from `tier`."""
        _check(deployment, seconds)
        for name in (deployment, ""):
            self._loads.setdefault((tier, name), MovingAverage()).add(seconds)

    def observe_offload(self, deployment: str, seconds: float) -> None:
        """It left the device."""
        _check(deployment, seconds)
        for name in (deployment, ""):
            self._offloads.setdefault(name, MovingAverage()).add(seconds)

    def load_s(self, deployment: str, tier: str) -> float:
        found = self._loads.get((tier, deployment)) or self._loads.get((tier, ""))
        return found.value if found else self._default_s

    def offload_s(self, deployment: str) -> float:
        found = self._offloads.get(deployment) or self._offloads.get("")
        return found.value if found else self._default_s


def _check(deployment: str, seconds: float) -> None:
    if not (math.isfinite(seconds) and seconds >= 0):
        raise PlaitError(f"a move of deployment {deployment!r} took {seconds} s.", "Give measured seconds, 0 or more.")
