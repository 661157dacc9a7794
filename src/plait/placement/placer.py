"""Events in, decisions out: where each job runs. The clock is passed in; nothing here acts.

- A job of a kind without a profile gets devices of its own (cold start); one with a profile is fitted into idle windows of groups
  that are there (warm start), or gets free devices: in which order is the policy's.
- Who fits nowhere waits, first come first served. A job that could not run on the whole, empty cluster is rejected; one that could
  not since nodes left is passed over until nodes join.
- A job whose trace drifts is judged again where it is, and moved, or made to wait at the head, if that is no longer admitted.
"""

from collections.abc import Callable, Iterable, Sequence

import msgspec

from plait.placement.consolidation import next_merge
from plait.placement.decision import Action, Decision, PoolPlacement
from plait.placement.demand_trace import DemandTrace
from plait.placement.drift import DriftSettings, DriftWatch
from plait.placement.extraction import extract
from plait.placement.fitting import Fit, Fitter, always
from plait.placement.job import Job, Pool
from plait.placement.job_profile import JobProfile
from plait.placement.reassess import slowdowns_of
from plait.placement.resource_view import Bytes, Node, ResourceView
from plait.placement.worker_groups import PlacedJob, WorkerGroup, WorkerGroups
from plait.types.errors import StateError


class Placer:
    """Base of the policies; see `policies`."""

    is_sharing = True
    needs_overlap = False

    def __init__(self, nodes: Iterable[Node], drift: DriftSettings | None = None) -> None:
        self.groups = WorkerGroups(nodes)
        self.profiles: dict[str, JobProfile] = {}
        self.queue: list[Job] = []
        self._fitter = Fitter(self.groups, self.cost, self.needs_overlap)
        self._watches: dict[str, DriftWatch] = {}
        self._drift = drift or DriftSettings()
        self._refresh_empty()

    def cost(self, group: WorkerGroup | None, pool: Pool, load: float, overlap: float) -> float:
        """Of a pool on this group; None: on free devices. Lower is tried first."""
        raise NotImplementedError

    def submit(self, job: Job, now_s: float) -> Decision:
        if job.job_id in self.groups.jobs or any(job.job_id == other.job_id for other in self.queue):
            raise StateError(f"job {job.job_id} is here already.", "Give every job an id of its own.")
        if not self._could_fit(job):
            return Decision(
                job.job_id, Action.REJECTED, reason=f"the cluster has no room for {self._size_of(job)}, even when empty"
            )
        self.queue.append(job)
        started = self._start_new(job, now_s)
        return started or Decision(job.job_id, Action.QUEUED, reason="no place is free")

    def job_ended(self, job_id: str, now_s: float) -> list[Decision]:
        """It ended, failed or was cancelled."""
        if job_id not in self.groups.jobs:
            self._forget_queued(job_id)
            return self._drain(now_s)
        self._remove(job_id, now_s)
        return self._drain(now_s)

    def node_joined(self, node: Node, now_s: float) -> list[Decision]:
        self.groups.view.add(node)
        self._refresh_empty()
        return self._drain(now_s)

    def node_left(self, node_id: str, now_s: float) -> list[Decision]:
        """Jobs that used it stop, wait before all others in the order they came, and go on elsewhere if there is room."""
        held = [job_id for job_id, placed in self.groups.jobs.items() if self._uses(placed, node_id)]
        stopped = [self._rest_of(self._remove(job_id, now_s), now_s) for job_id in held]
        self.groups.view.remove(node_id)
        self._refresh_empty()
        self.queue[:0] = stopped
        lost = [Decision(job.job_id, Action.QUEUED, reason=f"node {node_id} left") for job in stopped]
        return lost + self._drain(now_s)

    def trace_updated(self, job_id: str, trace: DemandTrace, now_s: float) -> list[Decision]:
        """Nothing comes of a trace that tells no period yet."""
        found = extract(trace)
        return [] if found.profile is None else self.profile_updated(job_id, found.profile, now_s, found.anchor_s)

    def profile_updated(self, job_id: str, profile: JobProfile, now_s: float, anchor_s: float) -> list[Decision]:
        """As `trace_updated`, for who has extracted it; a period began at `anchor_s`."""
        placed = self.groups.jobs.get(job_id)
        if placed is None:
            raise StateError(f"job {job_id} is not placed.", "Traces are of running jobs.")
        self.profiles.setdefault(placed.job.kind, profile)
        if not self.is_sharing:
            return []
        if placed.profile is None:
            return self._warm_up(placed, profile, now_s, anchor_s)
        if not self._watches[job_id].observe(profile, now_s):
            return []
        self.profiles[placed.job.kind] = profile
        return self._place_anew(placed, profile, now_s, anchor_s)

    def slowdown(self, job_id: str) -> float:
        """Expected T_co / T_solo of a placed job."""
        return self.groups.jobs[job_id].slowdown

    def _start_new(self, job: Job, now_s: float) -> Decision | None:
        """Nothing has changed for those before it."""
        return self._try(job, now_s) if len(self.queue) == 1 else None

    def _drain(self, now_s: float) -> list[Decision]:
        decisions = self._start_heads(now_s)
        if self._waiting():
            moved = self._consolidate(now_s)
            decisions += [*moved, *self._start_heads(now_s)] if moved else []
        return decisions

    def _waiting(self) -> list[Job]:
        return [job for job in self.queue if self._could_fit(job)]

    def _start_heads(self, now_s: float) -> list[Decision]:
        """From the head on, until one finds no place."""
        decisions: list[Decision] = []
        for job in self._waiting():
            decision = self._try(job, now_s)
            if decision is None:
                break
            decisions.append(decision)
        return decisions

    def _try(self, job: Job, now_s: float, accept: Callable[[Fit], bool] = always) -> Decision | None:
        profile = self.profiles.get(job.kind) if self.is_sharing else None
        if profile is not None:
            found = self._fitter.fit(job, profile, now_s, accept)
        else:
            found = self._fitter.alone(job)
            found = found if found is not None and accept(found) else None
        return None if found is None else self._start(job, profile, found, now_s)

    def _start(
        self, job: Job, profile: JobProfile | None, found: Fit, now_s: float, action: Action = Action.PLACED
    ) -> Decision | None:
        """None if memory does not suffice after all."""
        if not self.groups.place(job, profile, found.targets, now_s + found.shift_s, now_s):
            return None
        if job in self.queue:
            self.queue.remove(job)
        for job_id, slowdown in found.slowdowns.items():
            self.groups.jobs[job_id].advance(now_s, slowdown)
        if profile is not None:
            self._watches[job.job_id] = DriftWatch(profile, now_s, self._drift)
        return Decision(job.job_id, action, self._pools_of(job), found.shift_s, found.slowdowns)

    def _warm_up(self, placed: PlacedJob, profile: JobProfile, now_s: float, anchor_s: float) -> list[Decision]:
        """Its groups open for others, if its bytes fit in host memory."""
        if not self.groups.move(placed.job.job_id, profile, placed.groups, anchor_s):
            return []
        self._watches[placed.job.job_id] = DriftWatch(profile, now_s, self._drift)
        return self._drain(now_s)

    def _place_anew(self, placed: PlacedJob, profile: JobProfile, now_s: float, anchor_s: float) -> list[Decision]:
        """Where it is, if that is still admitted; elsewhere; or it waits before all others."""
        job = self._rest_of(placed, now_s)
        found = self._fitter.at(job, profile, placed.groups, now_s, (anchor_s - now_s) % profile.period_s)
        if found is None or self._move(placed, profile, found, now_s) is None:
            found = self._fitter.fit(job, profile, now_s)
            moved = self._move(placed, profile, found, now_s) if found is not None else None
            if moved is None:
                self._remove(job.job_id, now_s)
                self.queue.insert(0, job)
                moved = Decision(job.job_id, Action.QUEUED, reason="its demand changed, and it now fits nowhere")
            return [moved, *self._drain(now_s)]
        return self._drain(now_s)

    def _move(self, placed: PlacedJob, profile: JobProfile, found: Fit, now_s: float) -> Decision | None:
        """None if memory does not suffice after all."""
        job_id, before = placed.job.job_id, placed.groups
        if not self.groups.move(job_id, profile, found.targets, now_s + found.shift_s):
            return None
        self._watches[job_id].placed(profile, now_s)
        slowdowns = slowdowns_of(self.groups, before, now_s) | found.slowdowns
        for other, slowdown in slowdowns.items():
            self.groups.jobs[other].advance(now_s, slowdown)
        return Decision(job_id, Action.MOVED, self._pools_of(placed.job), found.shift_s, slowdowns)

    def _consolidate(self, now_s: float, accept: Callable[[PlacedJob, Fit], bool] = lambda placed, found: True) -> list[Decision]:
        """Empties groups of one member into others, for those who wait."""
        if not self.is_sharing:
            return []
        decisions: list[Decision] = []
        tried: set[tuple[str, int]] = set()
        while (merge := next_merge(self.groups, self._fitter, now_s, self._may_move, accept, tried)) is not None:
            placed, found = merge
            moved = self._move(placed, placed.profile, found, now_s) if placed.profile is not None else None
            if moved is not None:
                decisions.append(moved)
        return decisions

    def _may_move(self, job_id: str, now_s: float) -> bool:
        """Not within the cooldown of its last placement."""
        return job_id in self._watches and self._watches[job_id].is_due(now_s)

    def _remove(self, job_id: str, now_s: float) -> PlacedJob:
        """Those who shared with it go on faster."""
        placed = self.groups.remove(job_id)
        self._watches.pop(job_id, None)
        for other, slowdown in slowdowns_of(self.groups, placed.groups, now_s).items():
            self.groups.jobs[other].advance(now_s, slowdown)
        return placed

    @staticmethod
    def _rest_of(placed: PlacedJob, now_s: float) -> Job:
        left_s = placed.job.expected_s - placed.done_s - (now_s - placed.as_of_s) / placed.slowdown
        return msgspec.structs.replace(placed.job, expected_s=max(left_s, 1.0))

    def _forget_queued(self, job_id: str) -> None:
        kept = [job for job in self.queue if job.job_id != job_id]
        if len(kept) == len(self.queue):
            raise StateError(f"job {job_id} is not here.", "It ended before, or was never submitted.")
        self.queue = kept

    def _uses(self, placed: PlacedJob, node_id: str) -> bool:
        return any(part.node_id == node_id for group in placed.groups for part in self.groups.groups[group].slices)

    def _pools_of(self, job: Job) -> tuple[PoolPlacement, ...]:
        placed = self.groups.jobs[job.job_id]
        return tuple(
            PoolPlacement(pool.roles, group_id, self.groups.groups[group_id].slices, placed.is_shared)
            for pool, group_id in zip(job.pools, placed.groups, strict=True)
        )

    def _refresh_empty(self) -> None:
        self._empty = ResourceView(self.groups.view.nodes())
        self._fits_empty: dict[Sequence[Pool], bool] = {}

    def _could_fit(self, job: Job) -> bool:
        """On the empty cluster."""
        if job.pools not in self._fits_empty:
            wanted = [(pool.num_devices, Bytes(device=pool.bytes_per_device)) for pool in job.pools]
            self._fits_empty[job.pools] = self._empty.find_all(wanted) is not None
        return self._fits_empty[job.pools]

    @staticmethod
    def _size_of(job: Job) -> str:
        return " + ".join(f"{pool.num_devices} devices of {pool.bytes_per_device} bytes" for pool in job.pools)
