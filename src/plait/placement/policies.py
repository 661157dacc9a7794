"""The policies that PlexRL compares: isolated, pack, spread, spread with backfill."""

from contextlib import nullcontext

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
    """Where it overlaps with others least: free devices first, then the group with the least overlap, the emptier on ties."""

    needs_overlap = True

    def cost(self, group: WorkerGroup | None, pool: Pool, load: float, overlap: float) -> float:
        return 0.0 if group is None else 1 + overlap + 0.1 * group.load + _waste(group, pool)


class SpreadBackfill(Spread):
    """As Spread; and when the head of the queue fits nowhere, those behind it start if that does not delay its estimated start."""

    def _start_new(self, job: Job, now_s: float) -> Decision | None:
        head = self._head()
        if head is None or head is job:
            return self._try(job, now_s)
        return self._try_behind(job, plan_for(head, self.groups, now_s), now_s)

    def estimated_start_s(self, now_s: float) -> float | None:
        """Of the head of the queue; None if nobody waits, or nothing is known."""
        head = self._head()
        plan = plan_for(head, self.groups, now_s) if head is not None else None
        return plan.start_s if plan is not None else None

    def _head(self) -> Job | None:
        return next((job for job in self.queue if self._could_fit(job)), None)

    def _drain(self, now_s: float) -> list[Decision]:
        decisions = super()._drain(now_s)
        waiting = [job for job in self.queue if self._could_fit(job)][: BACKFILL_DEPTH + 1]
        if len(waiting) < 2:
            return decisions
        plan = plan_for(waiting[0], self.groups, now_s)
        refused: set[tuple[object, ...]] = set()
        for job in waiting[1:]:
            key = (job.kind, job.pools, job.slo, job.expected_s)
            decision = None if key in refused else self._try_behind(job, plan, now_s)
            if decision is None:
                refused.add(key)
            else:
                decisions.append(decision)
        return decisions

    def _try_behind(self, job: Job, plan: HeadPlan | None, now_s: float) -> Decision | None:
        """A head that nothing known makes room for cannot be delayed by what is known."""
        if plan is None:
            return self._try(job, now_s)
        profile = self.profiles.get(job.kind)
        is_short = plan.is_in_time(now_s + job.expected_s)
        with nullcontext() if is_short else plan.hidden(self.groups.view):
            if profile is None:
                found = self._fitter.alone(job)
            else:
                found = self._fitter.fit(job, profile, now_s, lambda fit: self._keeps(job, fit, plan, now_s))
        if found is None or not self._keeps(job, found, plan, now_s):
            return None
        return self._start(job, profile, found, now_s)

    def _keeps(self, job: Job, found: Fit, plan: HeadPlan, now_s: float) -> bool:
        slices = [self.groups.groups[target].slices if isinstance(target, int) else target for target in found.targets]
        end_s = now_s + job.expected_s * found.slowdowns[job.job_id]
        if any(plan.touches(pool) for pool in slices) and not plan.is_in_time(end_s):
            return False
        return all(
            self._others_keep(job_id, plan, now_s, slowdown) for job_id, slowdown in found.slowdowns.items() if job_id != job.job_id
        )

    def _others_keep(self, job_id: str, plan: HeadPlan, now_s: float, slowdown: float) -> bool:
        return plan.keeps(self.groups, self.groups.jobs[job_id], now_s, slowdown)


def _waste(group: WorkerGroup, pool: Pool) -> float:
    """Devices that the pool does not ask for, by those that it does."""
    return group.num_devices / pool.num_devices - 1
