"""When the job at the head of the queue can start at the latest by what is known, and on which devices: what backfill must respect.

The earliest time at which the groups that have ended by then, with the devices free now, hold all its pools on devices of its own.
It may start sooner, by sharing. Ends are estimates: what runs longer than expected delays it.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from plait.placement.job import Job
from plait.placement.resource_view import Bytes, ResourceView, Slice
from plait.placement.worker_groups import PlacedJob, WorkerGroups

TOLERANCE_S = 1e-6


@dataclass(slots=True)
class HeadPlan:
    """`devices` by node."""

    start_s: float
    devices: dict[str, set[int]]

    def touches(self, slices: Iterable[Slice]) -> bool:
        return any(not self.devices.get(part.node_id, set()).isdisjoint(part.devices) for part in slices)

    def is_in_time(self, end_s: float) -> bool:
        return end_s <= self.start_s + TOLERANCE_S

    def keeps(self, groups: WorkerGroups, placed: PlacedJob, now_s: float, slowdown: float) -> bool:
        """Whether a running job, so much slower, still leaves the devices in time."""
        if self.is_in_time(placed.end_s(now_s, slowdown)):
            return True
        return not any(self.touches(groups.groups[group_id].slices) for group_id in placed.groups)

    @contextmanager
    def hidden(self, view: ResourceView) -> Iterator[None]:
        """Within it, planned devices that are free now are not found."""
        parts = [Slice(node, tuple(sorted(devices & view.free(node)))) for node, devices in self.devices.items()]
        for part in parts:
            view.occupy(part)
        try:
            yield
        finally:
            for part in parts:
                view.vacate(part)


def plan_for(job: Job, groups: WorkerGroups, now_s: float) -> HeadPlan | None:
    """None if no expected end makes room."""
    ends = sorted((groups.end_s(group_id, now_s), group_id) for group_id in groups.groups)
    ends = [end for end in ends if end[0] < float("inf")]
    ahead = _Ahead(groups, ends)
    low, high = 0, len(ends)
    if ahead.place(job, high) is None:
        return None
    while low < high:
        middle = (low + high) // 2
        if ahead.place(job, middle) is None:
            low = middle + 1
        else:
            high = middle
    devices: dict[str, set[int]] = {}
    for part in (part for pool in ahead.place(job, low) or [] for part in pool):
        devices.setdefault(part.node_id, set()).update(part.devices)
    return HeadPlan(ends[low - 1][0] if low else now_s, devices)


class _Ahead:
    """The devices as they will be when the first of these groups have ended; no two groups have one in common."""

    def __init__(self, groups: WorkerGroups, ends: Sequence[tuple[float, int]]) -> None:
        self._view = groups.view.copy()
        self._slices = [groups.groups[group_id].slices for _, group_id in ends]
        self._num_ended = 0

    def place(self, job: Job, num_ended: int) -> list[tuple[Slice, ...]] | None:
        """Devices of its own for each of its pools, after so many ends."""
        before, self._num_ended = self._num_ended, num_ended
        for slices in self._slices[before:num_ended]:
            for part in slices:
                self._view.vacate(part)
        for slices in self._slices[num_ended:before]:
            for part in slices:
                self._view.occupy(part)
        return self._view.find_all([(pool.num_devices, Bytes(device=pool.bytes_per_device)) for pool in job.pools])
