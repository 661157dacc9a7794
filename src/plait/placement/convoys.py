"""What jobs cost each other that all start at once. Pure.

It depends on nothing but their phases, so jobs of the same kinds, on groups of their own that they share alike, are executed once.
"""

from collections.abc import Hashable, Sequence

import msgspec

from plait.placement.corun import Member, slowdowns
from plait.placement.corun_group import Orders
from plait.scheduling.orders import Hrrs

MAX_KNOWN = 4096


class Convoys:
    """`order`: of the groups that they share."""

    def __init__(self, order: Orders = Hrrs) -> None:
        self._order = order
        self._known: dict[Hashable, tuple[float, ...]] = {}

    def known(self, members: Sequence[Member]) -> dict[str, float] | None:
        """T_co / T_solo by job, if jobs like these were executed before."""
        found = self._known.get(_alike(members))
        return None if found is None else dict(zip((member.job_id for member in members), found, strict=True))

    def slowdowns(self, members: Sequence[Member]) -> dict[str, float]:
        found = self.known(members)
        if found is None:
            found = slowdowns([msgspec.structs.replace(member, start_s=0.0) for member in members], order=self._order)
            self._known[_alike(members)] = tuple(found[member.job_id] for member in members)
            if len(self._known) > MAX_KNOWN:
                del self._known[next(iter(self._known))]
        return found


def _alike(members: Sequence[Member]) -> Hashable:
    """All that counts but their starts: who has the same has the same convoy, to the last bit. Groups by order of appearance."""
    groups: dict[int, int] = {}
    return tuple(
        (
            member.period_s,
            member.tail_s,
            tuple(
                (groups.setdefault(step.group, len(groups)), step.duration_s, step.after, step.gap_s, step.switch_s)
                for step in member.steps
            ),
        )
        for member in members
    )
