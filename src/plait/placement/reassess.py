"""What the jobs on some groups now cost each other."""

from collections.abc import Iterable

from plait.placement.corun import slowdowns
from plait.placement.corun_group import Orders
from plait.placement.fitting import running
from plait.placement.worker_groups import WorkerGroups


def slowdowns_of(groups: WorkerGroups, group_ids: Iterable[int], now_s: float, order: Orders) -> dict[str, float]:
    """Expected T_co / T_solo of all jobs that depend on these groups, as they run now; groups that have ended are passed over."""
    expected: dict[str, float] = {}
    for group_id in set(group_ids) & groups.groups.keys():
        if not groups.groups[group_id].members.keys() <= expected.keys():
            coupled = groups.coupled([group_id])
            expected |= slowdowns([running(placed, now_s) for placed in coupled.values()], order=order)
    return expected
