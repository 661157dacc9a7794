"""Which deployments of a worker group are on the device, and who leaves it for another. Pure; the state manager moves the bytes.

- Those on the device fit `device_bytes` together, as far as their sizes are known: the group's process reports them.
- The least recently used leave first, never more than need be.
"""

from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping

from plait.scheduling.setup_times import SetupTimes


class ResidentSet:
    """`SetupEstimates` of a group's queue."""

    def __init__(self, device_bytes: int, times: SetupTimes) -> None:
        self.device_bytes, self._times = device_bytes, times
        self._sizes: dict[str, int] = {}
        self._resident: OrderedDict[str, None] = OrderedDict()
        """The least recently used first."""
        self._tiers: dict[str, str] = {}
        self._staged: tuple[str, tuple[str, ...]] | None = None
        """Who was staged since the last use, and who leaves for it."""

    @property
    def resident(self) -> tuple[str, ...]:
        """The least recently used first."""
        return tuple(self._resident)

    @property
    def resident_bytes(self) -> int:
        return sum(self._sizes[name] for name in self._resident)

    def use(self, deployment: str) -> tuple[str, ...] | None:
        """It is about to run: who leaves for it; None if it is there already."""
        self._staged = None
        if deployment in self._resident:
            self._resident.move_to_end(deployment)
            return None
        leaving = self._leaving(deployment)
        for name in leaving:
            del self._resident[name]
        self._resident[deployment] = None
        return leaving

    def stage(self, deployment: str, kept: Collection[str]) -> tuple[str, ...] | None:
        """It is to come beside those that are kept: who leaves for it, so that it is as good as there; None: there is no room."""
        leaving = self._leaving(deployment, kept) if deployment in self._sizes else ()
        freed_bytes = sum(self._sizes[name] for name in leaving)
        if deployment not in self._sizes or self._needed_bytes(deployment) > freed_bytes:
            return None
        for name in leaving:
            del self._resident[name]
        self._resident[deployment] = None
        self._staged = deployment, leaving
        return leaving

    def report(self, sizes: Mapping[str, int], resident: Iterable[str], is_switch: bool = False) -> None:
        """How it is on the device, after a call or a switch. A switch is told before what was staged after it has begun."""
        self._sizes = dict(sizes)
        found = set(resident)
        if is_switch and self._staged is not None:
            found = (found - set(self._staged[1])) | {self._staged[0]}
        for name in [name for name in self._resident if name not in found]:
            del self._resident[name]
        for name in found - self._resident.keys():
            self._resident[name] = None
            self._resident.move_to_end(name, last=False)

    def forget(self, deployment: str) -> None:
        self._resident.pop(deployment, None)
        self._sizes.pop(deployment, None)
        self._tiers.pop(deployment, None)

    @property
    def sizes(self) -> dict[str, int]:
        """Bytes that each deployment takes on the device."""
        return dict(self._sizes)

    def found_in(self, deployment: str, tier: str) -> None:
        """Where its state was when it came to the device; there it is expected the next time."""
        self._tiers[deployment] = tier

    def setup_s(self, deployment: str) -> float:
        if deployment in self._resident or deployment not in self._sizes:
            return 0.0
        load_s = self._times.load_s(deployment, self._tiers.get(deployment, "host"))
        return load_s + sum(self._times.offload_s(name) for name in self._leaving(deployment))

    def _needed_bytes(self, deployment: str) -> int:
        """By which it exceeds what is free."""
        return self._sizes.get(deployment, 0) + self.resident_bytes - self.device_bytes

    def _leaving(self, deployment: str, kept: Collection[str] = ()) -> tuple[str, ...]:
        """As few as need be, or all that may if they are too few."""
        needed = self._needed_bytes(deployment)
        leaving: list[str] = []
        for name in self._resident:
            if needed <= 0:
                break
            if name not in kept:
                leaving.append(name)
                needed -= self._sizes[name]
        return tuple(leaving)
