"""Finds where a job fits: groups to join or free devices, the shift to start at, and the slowdown of all who then share.

Options of each pool are ranked by the policy's cost, cheap ones first; their combinations are judged in order of their sums until
one is admitted. At most EVALUATIONS co-runs are executed for a job; a refusal is remembered while the members are the same.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import product

import msgspec

from plait.placement.admission import judge, load_fits
from plait.placement.convoys import Convoys
from plait.placement.corun import Member
from plait.placement.corun_group import Orders
from plait.placement.cyclic_timeline import Demand, micro_shift
from plait.placement.job import Job, Pool
from plait.placement.job_profile import JobProfile
from plait.placement.resource_view import Bytes, Slice
from plait.placement.worker_groups import PlacedJob, Target, WorkerGroup, WorkerGroups, demand_of, loads_of, member_of
from plait.scheduling.orders import Hrrs

MAX_MEMBERS = 4
"""Of a group. Two or three suffice (Weave); more of them cost switches."""
MAX_WASTE = 4.0
"""A pool joins no group of more than this many times its devices."""
OPTIONS = 6
"""Groups that are considered for each pool."""
EVALUATIONS = 12
MAX_REFUSALS = 20_000

Cost = Callable[[WorkerGroup | None, Pool, float, float], float]
"""Of a group (None: free devices) for a pool, given the load it would add and the least overlap there."""


class Fit(msgspec.Struct, frozen=True):
    """`targets` by pool; `shift_s` from now on."""

    targets: tuple[Target, ...]
    shift_s: float = 0.0
    slowdowns: dict[str, float] = {}


def always(_: Fit) -> bool:
    return True


class Fitter:
    """`needs_overlap`: the cost looks at the overlap, the dear part of ranking. `order`: of the calls at each group. `num_judged`:
    co-runs that were executed."""

    def __init__(self, groups: WorkerGroups, cost: Cost, needs_overlap: bool, order: Orders = Hrrs) -> None:
        self.groups, self.cost, self.needs_overlap, self.order = groups, cost, needs_overlap, order
        self.num_judged = 0
        self._convoys = Convoys(order)
        self._refused: dict[tuple[object, ...], None] = {}

    def alone(self, job: Job) -> Fit | None:
        """On free devices only."""
        slices = self.groups.view.find_all([(pool.num_devices, Bytes(device=pool.bytes_per_device)) for pool in job.pools])
        return None if slices is None else Fit(tuple(slices), slowdowns={job.job_id: 1.0})

    def fit(self, job: Job, profile: JobProfile, now_s: float, accept: Callable[[Fit], bool] = always) -> Fit | None:
        """The cheapest place that is admitted and accepted. Nothing is taken."""
        num_evaluated = 0
        free: dict[tuple[int, ...], dict[int, tuple[Slice, ...]] | None] = {}
        for choice in self._combinations(job, profile):
            new = tuple(index for index, group_id in enumerate(choice) if group_id is None)
            if new not in free:
                free[new] = self._free(job, new)
            slices = free[new]
            if slices is None:
                continue
            targets = [slices[index] if group_id is None else group_id for index, group_id in enumerate(choice)]
            before = self.num_judged
            found = self.at(job, profile, targets, now_s)
            if found is not None and accept(found):
                return found
            num_evaluated += self.num_judged - before
            if num_evaluated >= EVALUATIONS:
                return None
        return None

    def at(
        self, job: Job, profile: JobProfile, targets: Sequence[Target], now_s: float, shift_s: float | None = None
    ) -> Fit | None:
        """On these targets, if it is admitted there; at the best shift unless one is given.

        A job that is placed is judged as if it were not.
        """
        joined = [target for target in targets if isinstance(target, int)]
        others = self.groups.coupled(joined, job.job_id)
        key = (
            job.pools,
            job.slo,
            profile,
            tuple(target if isinstance(target, int) else None for target in targets),
            frozenset(others),
        )
        if key in self._refused or not all(load_fits(loads) for loads in self._loads(job, profile, targets).values()):
            return None
        if shift_s is None:
            shift_s = self._shift_s(job, profile, targets, now_s) if joined else 0.0
        own_groups = [target if isinstance(target, int) else -1 - index for index, target in enumerate(targets)]
        if not others and len(set(own_groups)) == len(own_groups):
            return Fit(tuple(targets), shift_s, {job.job_id: 1.0})
        members = [member_of(job, profile, own_groups, shift_s), *(running(placed, now_s) for placed in others.values())]
        self.num_judged += 1
        slos = {job.job_id: job.slo} | {job_id: placed.job.slo for job_id, placed in others.items()}
        verdict = judge(members, slos, self.order, self._convoys)
        if not verdict.is_admitted:
            self._refuse(key)
        return Fit(tuple(targets), shift_s, verdict.slowdowns) if verdict.is_admitted else None

    def _combinations(self, job: Job, profile: JobProfile) -> Iterator[tuple[int | None, ...]]:
        shares = loads_of(job, profile)
        by_pool = [self._options(pool, profile, share) for pool, share in zip(job.pools, shares, strict=True)]
        ranked = sorted(product(*by_pool), key=lambda choice: sum(cost for cost, _ in choice))
        return (tuple(group_id for _, group_id in choice) for choice in ranked)

    def _options(self, pool: Pool, profile: JobProfile, load: float) -> list[tuple[float, int | None]]:
        ranked: list[tuple[float, int | None]] = []
        demand = demand_of(profile, pool.roles)
        for group in self.groups.groups.values():
            if could_join(group, pool, load):
                ranked.append((self.cost(group, pool, load, self._overlap(group, demand)), group.group_id))
        ranked.sort(key=lambda option: option[0])
        return [*ranked[:OPTIONS], (self.cost(None, pool, load, 0.0), None)]

    def _overlap(self, group: WorkerGroup, demand: Demand) -> float:
        return self.groups.timeline(group.group_id).least_overlap(demand) if self.needs_overlap else 0.0

    def _free(self, job: Job, pools: Sequence[int]) -> dict[int, tuple[Slice, ...]] | None:
        """Free devices for these pools; None if there are too few."""
        wanted = [(job.pools[index].num_devices, Bytes(device=job.pools[index].bytes_per_device)) for index in pools]
        slices = self.groups.view.find_all(wanted)
        return None if slices is None else dict(zip(pools, slices, strict=True))

    def _loads(self, job: Job, profile: JobProfile, targets: Sequence[Target]) -> dict[int, list[float]]:
        loads: dict[int, list[float]] = {}
        for target, share in zip(targets, loads_of(job, profile), strict=True):
            if isinstance(target, int):
                members = self.groups.groups[target].members
                loads.setdefault(target, [load for job_id, load in members.items() if job_id != job.job_id]).append(share)
        return loads

    def _shift_s(self, job: Job, profile: JobProfile, targets: Sequence[Target], now_s: float) -> float:
        pools = [(pool, target) for pool, target in zip(job.pools, targets, strict=True) if isinstance(target, int)]
        demands = [demand_of(profile, pool.roles, now_s) for pool, _ in pools]
        return micro_shift(demands, [self.groups.timeline(target) for _, target in pools])[0]

    def _refuse(self, key: tuple[object, ...]) -> None:
        self._refused[key] = None
        if len(self._refused) > MAX_REFUSALS:
            self._refused.pop(next(iter(self._refused)))


def running(placed: PlacedJob, now_s: float) -> Member:
    """A placed job as it takes part in a co-run from now on."""
    if placed.profile is None:
        return Member(placed.job.job_id, 1.0, ())
    if placed.member is None:
        placed.member = member_of(placed.job, placed.profile, placed.groups, 0.0)
    return msgspec.structs.replace(placed.member, start_s=(placed.anchor_s - now_s) % placed.profile.period_s)


def could_join(group: WorkerGroup, pool: Pool, load: float) -> bool:
    return (
        pool.num_devices <= group.num_devices <= MAX_WASTE * pool.num_devices
        and len(group.members) < MAX_MEMBERS
        and pool.bytes_per_device <= group.device_bytes
        and load_fits([group.load, load])
    )
