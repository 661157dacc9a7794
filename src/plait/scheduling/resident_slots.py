"""Setup estimates for a device that holds a number of deployments, whatever their size; the least recently used leaves first. Pure.

For simulations, and wherever no state manager counts bytes.
"""

from collections import OrderedDict
from collections.abc import Mapping

from plait.scheduling.setup_times import SetupTimes
from plait.types.errors import ConfigError


class ResidentSlots:
    """`tiers`: where each deployment's state is while it is not resident; `tier` for those that it lacks."""

    def __init__(self, times: SetupTimes, num_slots: int = 1, tiers: Mapping[str, str] | None = None, tier: str = "host") -> None:
        if num_slots < 1:
            raise ConfigError(f"num_slots is {num_slots}.", "Give 1 or more.")
        self._times = times
        self._num_slots = num_slots
        self._tiers = dict(tiers or {})
        self._tier = tier
        self._resident: OrderedDict[str, None] = OrderedDict()
        """The least recently used first."""

    @property
    def resident(self) -> tuple[str, ...]:
        """The least recently used first."""
        return tuple(self._resident)

    def tier(self, deployment: str) -> str:
        """From where it is loaded."""
        return self._tiers.get(deployment, self._tier)

    def setup_s(self, deployment: str) -> float:
        if deployment in self._resident:
            return 0.0
        load_s = self._times.load_s(deployment, self._tiers.get(deployment, self._tier))
        leaving = self._leaving()
        return load_s if leaving is None else load_s + self._times.offload_s(leaving)

    def enter(self, deployment: str) -> str | None:
        """It is used now: who had to leave."""
        leaving = None if deployment in self._resident else self._leaving()
        if leaving is not None:
            del self._resident[leaving]
        self._resident[deployment] = None
        self._resident.move_to_end(deployment)
        return leaving

    def _leaving(self) -> str | None:
        return next(iter(self._resident)) if len(self._resident) >= self._num_slots else None
