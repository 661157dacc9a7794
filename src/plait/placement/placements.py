"""Carries out what was found: jobs start, move and end in the book, and everybody's expected slowdown follows."""

from collections.abc import Callable, Mapping

import msgspec

from plait.placement.consolidation import MERGES, next_merge
from plait.placement.decision import Action, Decision, PoolPlacement
from plait.placement.drift import DriftSettings, DriftWatch
from plait.placement.fitting import Fit, Fitter
from plait.placement.job import Job
from plait.placement.job_profile import JobProfile
from plait.placement.reassess import slowdowns_of
from plait.placement.worker_groups import PlacedJob, WorkerGroups


class Placements:
    """`watches`: of the jobs that share, or could."""

    def __init__(self, groups: WorkerGroups, fitter: Fitter, drift: DriftSettings) -> None:
        self.groups, self._fitter, self._drift = groups, fitter, drift
        self.watches: dict[str, DriftWatch] = {}
        self._late: list[str] = []

    def start(self, job: Job, profile: JobProfile | None, found: Fit, now_s: float) -> Decision | None:
        """None if memory does not suffice after all."""
        if not self.groups.place(job, profile, found.targets, now_s + found.shift_s, now_s):
            return None
        if profile is not None:
            self.watches[job.job_id] = DriftWatch(profile, now_s, self._drift)
        self._advance(found.slowdowns, now_s)
        return Decision(job.job_id, Action.PLACED, self._pools_of(job), found.shift_s, found.slowdowns)

    def warm_up(self, placed: PlacedJob, profile: JobProfile, now_s: float, anchor_s: float) -> bool:
        """The groups of a job that had them alone open for others, if its bytes fit in host memory."""
        if not self.groups.move(placed.job.job_id, profile, placed.groups, anchor_s):
            return False
        self.watches[placed.job.job_id] = DriftWatch(profile, now_s, self._drift)
        return True

    def move(self, placed: PlacedJob, profile: JobProfile, found: Fit, now_s: float) -> Decision | None:
        """None if memory does not suffice after all."""
        job_id, before = placed.job.job_id, placed.groups
        if not self.groups.move(job_id, profile, found.targets, now_s + found.shift_s):
            return None
        self.watches[job_id].placed(profile, now_s)
        slowdowns = slowdowns_of(self.groups, before, now_s, self._fitter.order) | found.slowdowns
        self._advance(slowdowns, now_s)
        return Decision(job_id, Action.MOVED, self._pools_of(placed.job), found.shift_s, slowdowns)

    def remove(self, job_id: str, now_s: float) -> PlacedJob:
        """Those who shared with it go on faster."""
        placed = self.groups.remove(job_id)
        self.watches.pop(job_id, None)
        self._advance(slowdowns_of(self.groups, placed.groups, now_s, self._fitter.order), now_s)
        return placed

    def mend(self, now_s: float) -> list[Decision]:
        """Moves who has come to break its bound because a job that it shared with left: what remains may lock less well."""
        decisions: list[Decision] = []
        late, self._late = self._late, []
        for job_id in late:
            placed = self.groups.jobs.get(job_id)
            if placed is None or placed.profile is None or placed.slowdown <= placed.job.slo:
                continue
            found = self._fitter.fit(placed.job, placed.profile, now_s)
            moved = self.move(placed, placed.profile, found, now_s) if found is not None else None
            decisions += [moved] if moved is not None else []
        return decisions

    def consolidate(self, now_s: float, accept: Callable[[PlacedJob, Fit], bool] = lambda placed, found: True) -> list[Decision]:
        """Empties groups of one member into others, for those who wait."""
        decisions: list[Decision] = []
        tried: set[tuple[str, int]] = set()
        limit = self._fitter.num_judged + MERGES
        while (merge := next_merge(self.groups, self._fitter, now_s, self._may_move, accept, tried, limit)) is not None:
            placed, found = merge
            moved = self.move(placed, placed.profile, found, now_s) if placed.profile is not None else None
            if moved is not None:
                decisions.append(moved)
        return decisions

    def _may_move(self, job_id: str, now_s: float) -> bool:
        """Not within the cooldown of its last placement."""
        return job_id in self.watches and self.watches[job_id].is_due(now_s)

    def _advance(self, slowdowns: Mapping[str, float], now_s: float) -> None:
        for job_id, slowdown in slowdowns.items():
            placed = self.groups.jobs[job_id]
            placed.advance(now_s, slowdown)
            if slowdown > placed.job.slo:
                self._late.append(job_id)

    def _pools_of(self, job: Job) -> tuple[PoolPlacement, ...]:
        placed = self.groups.jobs[job.job_id]
        return tuple(
            PoolPlacement(pool.roles, group_id, self.groups.groups[group_id].slices, placed.is_shared)
            for pool, group_id in zip(job.pools, placed.groups, strict=True)
        )


def rest_of(placed: PlacedJob, now_s: float) -> Job:
    """What is left of it to do."""
    left_s = placed.job.expected_s - placed.done_s - (now_s - placed.as_of_s) / placed.slowdown
    return msgspec.structs.replace(placed.job, expected_s=max(left_s, 1.0))
