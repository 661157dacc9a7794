"""The policies that PlexRL compares: isolated, pack, spread, spread with backfill."""

from collections.abc import Callable, Sequence
from functools import partial

from plait.placement.decision import Decision
from plait.placement.fitting import Fit
from plait.placement.head_plan import HeadPlan, plan_for
from plait.placement.job import Job, Pool
from plait.placement.placer import Placer
from plait.placement.worker_groups import WorkerGroup

BACKFILL_DEPTH = 128
"""Waiting jobs behind the head that are tried."""
FREE_DEVICES_LAST = 10.0


class Isolated(Placer):
    """Every pool on devices of its own; first come, first served."""

    is_sharing = False


class Pack(Placer):
    """The fullest group that still admits the job, the tightest in size first; free devices only if none does."""

    def cost(self, group: WorkerGroup | None, pool: Pool, load: float, overlap: float) -> float:
        return FREE_DEVICES_LAST if group is None else 1 - group.load - load + _waste(group, pool)


class Spread(Placer):
    """Where it overlaps with others least: free devices first, then the group with the least overlap, the emptier on ties.

    While others wait, free devices are for those who can share nothing.
    """

    needs_overlap = True

    def cost(self, group: WorkerGroup | None, pool: Pool, load: float, overlap: float) -> float:
        if group is None:
            return FREE_DEVICES_LAST if self.is_crowded else 0.0
        return 1 + overlap + 0.1 * group.load + _waste(group, pool)


class SpreadBackfill(Spread):
    """As Spread; and when the head of the queue fits nowhere, those behind it start if that does not delay its estimated start."""

    def _start_new(self, job: Job, now_s: float) -> Decision | None:
        waiting = self._waiting()
        if waiting[0] is job:
            return self._try(job, now_s)
        started = self._backfill([job], plan_for(waiting[0], self.groups, now_s), now_s)
        return started[0] if started else None

    def _drain(self, now_s: float) -> list[Decision]:
        decisions = self._start_heads(now_s)
        if waiting := self._waiting():
            plan = plan_for(waiting[0], self.groups, now_s)
            moved = self._placements.consolidate(
                now_s, lambda placed, found: plan is None or self._keeps(plan, now_s, placed.job, found)
            )
            if moved:
                decisions += [*moved, *self._start_heads(now_s)]
        if len(waiting := self._waiting()) > 1:
            decisions += self._backfill(waiting[1 : BACKFILL_DEPTH + 1], plan_for(waiting[0], self.groups, now_s), now_s)
        return decisions

    def _backfill(self, jobs: Sequence[Job], plan: HeadPlan | None, now_s: float) -> list[Decision]:
        """First without the devices that are kept for the head; then, who will have ended by then, with them.

        A head that nothing known makes room for cannot be delayed by what is known.
        """
        if plan is None:
            return self._start_each(jobs, lambda job, fit: True, now_s)
        keeps = partial(self._keeps, plan, now_s)
        with plan.hidden(self.groups.view):
            decisions = self._start_each(jobs, keeps, now_s)
        started = {decision.job_id for decision in decisions}
        short = [job for job in jobs if job.job_id not in started and plan.is_in_time(now_s + job.expected_s)]
        return decisions + self._start_each(short, keeps, now_s)

    def _start_each(self, jobs: Sequence[Job], keeps: Callable[[Job, Fit], bool], now_s: float) -> list[Decision]:
        """Who is like one that was refused, and no shorter, is not tried."""
        refused: dict[tuple[object, ...], float] = {}
        decisions: list[Decision] = []
        for job in jobs:
            key = (job.kind, job.pools, job.slo)
            if job.expected_s >= refused.get(key, float("inf")):
                continue
            decision = self._try(job, now_s, partial(keeps, job))
            if decision is None:
                refused[key] = job.expected_s
            else:
                decisions.append(decision)
        return decisions

    def _keeps(self, plan: HeadPlan, now_s: float, job: Job, found: Fit) -> bool:
        slices = [self.groups.groups[target].slices if isinstance(target, int) else target for target in found.targets]
        slowdown = found.slowdowns[job.job_id]
        placed = self.groups.jobs.get(job.job_id)
        end_s = now_s + found.shift_s + job.expected_s * slowdown if placed is None else placed.end_s(now_s, slowdown)
        if any(plan.touches(pool) for pool in slices) and not plan.is_in_time(end_s):
            return False
        others = [(job_id, slowdown) for job_id, slowdown in found.slowdowns.items() if job_id != job.job_id]
        return all(plan.keeps(self.groups, self.groups.jobs[job_id], now_s, slowdown) for job_id, slowdown in others)


def _waste(group: WorkerGroup, pool: Pool) -> float:
    """Devices that the pool does not ask for, by those that it does."""
    return group.num_devices / pool.num_devices - 1
