"""The book of worker groups and of the jobs placed on them.

- A group is a set of devices that serves one phase at a time; every member uses all of it. It ends with its last member.
- Only a job with a profile shares. A job without one holds its groups alone (share 1, its bytes on the devices). A job that shares
  has its home in host memory (claimed there) and the devices' memory while it is served.
- Jobs that share a group, directly or through others, depend on each other: `coupled`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from plait.placement.corun import Member, chained
from plait.placement.cyclic_timeline import CyclicTimeline, Demand
from plait.placement.job import Job
from plait.placement.job_profile import JobProfile, loads
from plait.placement.reservations import Claim, Reservations
from plait.placement.resource_view import Bytes, Node, ResourceView, Slice, num_devices

Target = int | tuple[Slice, ...]
"""Of a pool: a group that is there, or free devices for a new one."""


@dataclass(slots=True)
class WorkerGroup:
    group_id: int
    slices: tuple[Slice, ...]
    num_devices: int
    device_bytes: int
    members: dict[str, float] = field(default_factory=dict)
    """Load by job; 1 for a job that does not share."""
    timeline: CyclicTimeline | None = None

    @property
    def load(self) -> float:
        return sum(self.members.values())


@dataclass(slots=True)
class PlacedJob:
    """`groups`: by pool. `anchor_s`: when a period of it begins. `done_s`: how far it had come at `as_of_s`, in seconds alone."""

    job: Job
    profile: JobProfile | None
    groups: tuple[int, ...]
    reservation: int
    anchor_s: float
    as_of_s: float
    is_shared: bool
    done_s: float = 0.0
    slowdown: float = 1.0
    member: Member | None = None

    def end_s(self, now_s: float, slowdown: float | None = None) -> float:
        """When it is expected to end, from now on at this slowdown."""
        left_s = self.job.expected_s - self.done_s - (now_s - self.as_of_s) / self.slowdown
        return now_s + max(left_s, 0.0) * (slowdown or self.slowdown)

    def advance(self, now_s: float, slowdown: float) -> None:
        self.done_s += max(0.0, now_s - self.as_of_s) / self.slowdown
        self.as_of_s, self.slowdown = max(now_s, self.as_of_s), slowdown


class WorkerGroups:
    def __init__(self, nodes: Iterable[Node]) -> None:
        self.view = ResourceView(nodes)
        self.reservations = Reservations(self.view)
        self.groups: dict[int, WorkerGroup] = {}
        self.jobs: dict[str, PlacedJob] = {}
        self._next_id = 0

    def place(self, job: Job, profile: JobProfile | None, targets: Sequence[Target], anchor_s: float, now_s: float) -> bool:
        """All pools on their targets, or nothing. It shares if it has a profile and its bytes fit in host memory."""
        slices = [self.groups[target].slices if isinstance(target, int) else target for target in targets]
        is_new = [not isinstance(target, int) for target in targets]
        is_shared = profile is not None
        reservation = self.reservations.reserve(claims_of(job, profile, slices))
        if reservation is None and all(is_new) and profile is not None:
            is_shared, reservation = False, self.reservations.reserve(claims_of(job, None, slices))
        if reservation is None:
            return False
        groups = tuple(target if isinstance(target, int) else self._open(target) for target in targets)
        self.jobs[job.job_id] = PlacedJob(job, profile, groups, reservation, anchor_s, now_s, is_shared)
        self._join(self.jobs[job.job_id])
        return True

    def remove(self, job_id: str) -> PlacedJob:
        """Its claims end; groups that it leaves empty end too."""
        placed = self.jobs.pop(job_id)
        self.reservations.release(placed.reservation)
        self._leave(job_id, set(placed.groups))
        return placed

    def move(self, job_id: str, profile: JobProfile, targets: Sequence[Target], anchor_s: float) -> bool:
        """A placed job on these targets with this profile (both may be what they are), or nothing; from then on it shares."""
        placed = self.jobs[job_id]
        slices = [self.groups[target].slices if isinstance(target, int) else target for target in targets]
        if not self.reservations.replace(placed.reservation, claims_of(placed.job, profile, slices)):
            return False
        before = placed.groups
        placed.groups = tuple(target if isinstance(target, int) else self._open(target) for target in targets)
        placed.profile, placed.anchor_s, placed.is_shared, placed.member = profile, anchor_s, True, None
        self._join(placed)
        self._leave(job_id, set(before) - set(placed.groups))
        return True

    def coupled(self, group_ids: Iterable[int], ignored: str | None = None) -> dict[str, PlacedJob]:
        """Every placed job that uses one of these groups, or depends on one that does; as if the ignored job were not there."""
        found: dict[str, PlacedJob] = {}
        seen: set[int] = set()
        waiting = list(group_ids)
        while waiting:
            group_id = waiting.pop()
            if group_id in seen:
                continue
            seen.add(group_id)
            for job_id in self.groups[group_id].members:
                if job_id not in found and job_id != ignored:
                    found[job_id] = self.jobs[job_id]
                    waiting.extend(found[job_id].groups)
        return found

    def timeline(self, group_id: int) -> CyclicTimeline:
        group = self.groups[group_id]
        if group.timeline is None:
            placed = [self.jobs[job_id] for job_id in group.members]
            group.timeline = CyclicTimeline([demand for job in placed for demand in self._demands(job, group_id)])
        return group.timeline

    def end_s(self, group_id: int, now_s: float) -> float:
        """When its last member is expected to end."""
        return max(self.jobs[job_id].end_s(now_s) for job_id in self.groups[group_id].members)

    def _leave(self, job_id: str, group_ids: Iterable[int]) -> None:
        for group_id in group_ids:
            group = self.groups[group_id]
            del group.members[job_id]
            group.timeline = None
            if not group.members:
                del self.groups[group_id]

    def _demands(self, placed: PlacedJob, group_id: int) -> list[Demand]:
        if placed.profile is None:
            return [Demand(1.0, ((0.0, 1.0),))]
        pools = zip(placed.job.pools, placed.groups, strict=True)
        return [demand_of(placed.profile, pool.roles, placed.anchor_s) for pool, at in pools if at == group_id]

    def _open(self, slices: tuple[Slice, ...]) -> int:
        self._next_id += 1
        smallest = min(self.view.node(part.node_id).memory.device for part in slices)
        self.groups[self._next_id] = WorkerGroup(self._next_id, slices, num_devices(slices), smallest)
        return self._next_id

    def _join(self, placed: PlacedJob) -> None:
        shares = loads_of(placed.job, placed.profile if placed.is_shared else None)
        for group_id in set(placed.groups):
            self.groups[group_id].members[placed.job.job_id] = 0.0
            self.groups[group_id].timeline = None
        for group_id, share in zip(placed.groups, shares, strict=True):
            self.groups[group_id].members[placed.job.job_id] += share


def loads_of(job: Job, profile: JobProfile | None) -> list[float]:
    """By pool; a job that leaves no room has load 1."""
    return [1.0] * len(job.pools) if profile is None else [min(1.0, load) for load in loads(job, profile)]


def claims_of(job: Job, profile: JobProfile | None, slices: Sequence[tuple[Slice, ...]]) -> list[Claim]:
    shares = loads_of(job, profile)
    each = [Bytes(device=pool.bytes_per_device) if profile is None else Bytes(host=pool.bytes_per_device) for pool in job.pools]
    return [Claim(part, share, memory) for part, share, memory in zip(slices, shares, each, strict=True)]


def demand_of(profile: JobProfile, roles: Sequence[str], anchor_s: float = 0.0) -> Demand:
    return Demand(profile.period_s, tuple(profile.windows(roles)), anchor_s)  # type: ignore[arg-type]


def member_of(job: Job, profile: JobProfile, group_ids: Sequence[int], start_s: float) -> Member:
    """As it takes part in a co-run on these groups."""
    phases = [
        (group_id, start, end - start, pool.switch_s)
        for pool, group_id in zip(job.pools, group_ids, strict=True)
        for start, end in profile.windows(pool.roles)
    ]
    return chained(job.job_id, profile.period_s, sorted(phases, key=lambda phase: phase[1]), start_s)
