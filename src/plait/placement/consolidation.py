"""Which group of one member to empty into which other group, so that devices come free for jobs that wait.

The lightest such group first; of the groups that its job could join, the fullest first, as Pack would. The job keeps its phase and
its other pools; everybody concerned is admitted anew. At most MERGES co-runs are executed for one decision.
"""

from collections.abc import Callable, Sequence

from plait.placement.fitting import Fit, Fitter, could_join
from plait.placement.worker_groups import PlacedJob, WorkerGroup, WorkerGroups

MERGES = 8
TARGETS = 3
"""Groups that are tried for each."""


def next_merge(
    groups: WorkerGroups,
    fitter: Fitter,
    now_s: float,
    may_move: Callable[[str, float], bool],
    accept: Callable[[PlacedJob, Fit], bool],
    tried: set[tuple[str, int]],
    judged_limit: int,
) -> tuple[PlacedJob, Fit] | None:
    """`tried`: what was, in this decision; it grows. `judged_limit`: of the fitter's count of co-runs."""
    for group in sorted(groups.groups.values(), key=lambda group: (group.load, group.group_id)):
        placed = _sole_member(groups, group)
        if placed is None or placed.profile is None or not may_move(placed.job.job_id, now_s):
            continue
        for target in _targets(groups, group, placed)[:TARGETS]:
            attempt = (placed.job.job_id, target.group_id)
            if attempt in tried:
                continue
            if fitter.num_judged >= judged_limit:
                return None
            tried.add(attempt)
            moved = [target.group_id if at == group.group_id else at for at in placed.groups]
            found = fitter.at(placed.job, placed.profile, moved, now_s, (placed.anchor_s - now_s) % placed.profile.period_s)
            if found is not None and accept(placed, found):
                return placed, found
    return None


def _sole_member(groups: WorkerGroups, group: WorkerGroup) -> PlacedJob | None:
    """A job that shares, and uses the group for one of its pools."""
    if len(group.members) != 1:
        return None
    placed = groups.jobs[next(iter(group.members))]
    return placed if placed.is_shared and placed.groups.count(group.group_id) == 1 else None


def _targets(groups: WorkerGroups, group: WorkerGroup, placed: PlacedJob) -> Sequence[WorkerGroup]:
    pool = placed.job.pools[placed.groups.index(group.group_id)]
    others = [other for other in groups.groups.values() if other is not group and could_join(other, pool, group.load)]
    return sorted(others, key=lambda other: other.num_devices / pool.num_devices - other.load)
