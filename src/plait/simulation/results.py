"""What a simulation measured, in bounded memory however long it is: bins of time, histograms, counters.

`Recorder` takes what happens; `SystemResult` is what comes out, for tables, reports, JSON and CSV.
"""

from collections.abc import Mapping

import msgspec

from plait.simulation.comparison import Comparison
from plait.simulation.distribution import Distribution, Summary
from plait.simulation.timeline import Timeline

FIRST_BIN_S = 0.01


class GroupLine(msgspec.Struct, frozen=True):
    """Devices that are counted together: the share of their time in which they worked."""

    name: str
    num_devices: int
    utilisation: float
    shares: tuple[float, ...]
    """In each bin of the timeline."""


class SeriesLine(msgspec.Struct, frozen=True):
    """The mean of a value in each bin, as the share of caches that is reserved."""

    name: str
    mean: float
    largest: float
    """Of the bins' means."""
    means: tuple[float, ...]


class WorkRow(msgspec.Struct, frozen=True):
    """A task or job. Times in seconds; what never came is None."""

    name: str
    kind: str
    arrival_s: float
    start_s: float | None
    """Of a job: when it got devices. Of a task: the end of its first step."""
    end_s: float | None
    steps: int
    slowdown: float | None
    """How many times as long as alone."""
    device_hours: float | None = None


class SystemResult(msgspec.Struct, frozen=True):
    name: str
    end_s: float
    figures: dict[str, float | None]
    """By the keys of `figures`."""
    bin_s: float
    groups: tuple[GroupLine, ...]
    series: tuple[SeriesLine, ...]
    waits: dict[str, Summary]
    """Distributions of times: waiting, tails, slowdowns."""
    works: tuple[WorkRow, ...]


class ScenarioResult(msgspec.Struct, frozen=True):
    name: str
    kind: str
    title: str
    description: str
    seed: int
    is_quick: bool
    systems: tuple[SystemResult, ...]
    assumptions: tuple[str, ...] = ()
    paper: tuple[Comparison, ...] = ()
    """Figures of the paper that the scenario is after."""

    def json(self) -> bytes:
        """The same result gives the same bytes."""
        return msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n"


class Recorder:
    """`groups`: number of devices by group. Times begin at 0."""

    def __init__(self, groups: Mapping[str, int]) -> None:
        self.groups = dict(groups)
        self.busy_device_s = dict.fromkeys(groups, 0.0)
        self._busy = {name: Timeline(FIRST_BIN_S) for name in groups}
        self._values: dict[str, tuple[Timeline, float, float]] = {}
        """(Bins of value times seconds, since when, the value)."""
        self._waits: dict[str, Distribution] = {}
        self.counts: dict[str, float] = {}

    def busy(self, group: str, start_s: float, end_s: float, num_devices: int = 1) -> None:
        """So many devices of the group worked."""
        device_s = (end_s - start_s) * num_devices
        self.busy_device_s[group] += device_s
        self._busy[group].add(start_s, end_s, device_s)

    def value(self, name: str, time_s: float, value: float) -> None:
        """From now on it is this."""
        timeline, since_s, before = self._values.get(name) or (Timeline(FIRST_BIN_S), time_s, 0.0)
        if time_s > since_s:
            timeline.add(since_s, time_s, before * (time_s - since_s))
        self._values[name] = (timeline, time_s, value)

    def wait(self, name: str, seconds: float) -> None:
        self._waits.setdefault(name, Distribution()).add(max(0.0, seconds))

    def count(self, name: str, amount: float = 1.0) -> None:
        self.counts[name] = self.counts.get(name, 0.0) + amount

    # ---- what comes out

    def utilisation(self, end_s: float) -> float:
        """Of all devices together, until then."""
        whole = sum(self.groups.values()) * end_s
        return sum(self.busy_device_s.values()) / whole if whole else 0.0

    def lines(self, end_s: float) -> tuple[float, tuple[GroupLine, ...], tuple[SeriesLine, ...]]:
        """(Width of a bin, groups, series), all with equally wide bins up to `end_s`."""
        for name, (_, _, value) in list(self._values.items()):
            self.value(name, end_s, value)
        timelines = [*self._busy.values(), *(timeline for timeline, _, _ in self._values.values())]
        bin_s = max((timeline.bin_s for timeline in timelines), default=FIRST_BIN_S)
        for timeline in timelines:
            timeline.widen(bin_s)
        groups = tuple(self._group(name, bin_s, end_s) for name in self.groups)
        return bin_s, groups, tuple(self._series(name, bin_s, end_s) for name in self._values)

    def summaries(self) -> dict[str, Summary]:
        return {name: self._waits[name].summary() for name in sorted(self._waits)}

    def summary(self, name: str) -> Summary:
        return self._waits[name].summary() if name in self._waits else Summary()

    def _group(self, name: str, bin_s: float, end_s: float) -> GroupLine:
        devices = self.groups[name]
        widths = _widths(self._busy[name], bin_s, end_s)
        shares = tuple(round(amount / (width * devices), 5) for amount, width in widths)
        whole = end_s * devices
        return GroupLine(name, devices, self.busy_device_s[name] / whole if whole else 0.0, shares)

    def _series(self, name: str, bin_s: float, end_s: float) -> SeriesLine:
        widths = _widths(self._values[name][0], bin_s, end_s)
        means = tuple(round(amount / width, 5) for amount, width in widths)
        total = sum(amount for amount, _ in widths)
        return SeriesLine(name, total / end_s if end_s else 0.0, max(means, default=0.0), means)


def _widths(timeline: Timeline, bin_s: float, end_s: float) -> list[tuple[float, float]]:
    """(Amount, seconds) of each bin; the last one ends at `end_s`."""
    found = []
    for number, amount in enumerate(timeline.until(end_s)):
        width = min(bin_s, end_s - number * bin_s)
        if width > 1e-9 * bin_s:
            found.append((amount, width))
    return found
