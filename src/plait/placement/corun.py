"""How much slower jobs run that share groups: their overlapped timelines, executed.

- A group is a worker group's own queue and order (`scheduling`): it serves one phase at a time, to its end, and next the one that
  the order picks, from all that has been released by that moment. Setup is 0 for the job served last.
- A job is a closed loop. A phase is released when all phases that end before its start, in the profile, are done, plus the gap
  between; the next period begins when all are done, plus the gap that the profile has at the end. So a phase with slack (training
  beside the next rollout) delays nothing until the slack is used up.
- T_co is the mean period over NUM_PERIODS or more, or over the second half of them if that is longer: jobs that do not meet at
  first may drift into each other later. T_solo is the profile's period.
"""

from collections.abc import Sequence
from heapq import heappop, heappush
from itertools import count

import msgspec

from plait.placement.corun_group import CoRunGroup, Orders, Phase
from plait.scheduling.orders import Hrrs

NUM_PERIODS = 32
MAX_EVENTS = 20_000
"""A run with periods this far apart says enough of the long ones."""


class Step(msgspec.Struct, frozen=True):
    """A phase on one group. `after`: index of the step it waits for, -1: the start of the period; then `gap_s` more."""

    group: int
    duration_s: float
    after: int = -1
    gap_s: float = 0.0
    switch_s: float = 0.0


class Member(msgspec.Struct, frozen=True):
    """A job of a co-run. `tail_s`: from the end of its last step to the end of its period."""

    job_id: str
    period_s: float
    steps: tuple[Step, ...]
    tail_s: float = 0.0
    start_s: float = 0.0


def chained(job_id: str, period_s: float, phases: Sequence[tuple[int, float, float, float]], start_s: float = 0.0) -> Member:
    """A member from (group, offset_s, duration_s, switch_s) of its phases; each waits for the last that ends before it."""
    steps: list[Step] = []
    ends = [offset + duration for _, offset, duration, _ in phases]
    slack = 1e-6 * period_s
    for index, (group, offset, duration, switch) in enumerate(phases):
        before = [other for other, end in enumerate(ends) if other != index and end <= offset + slack]
        after = max(before, key=lambda other: ends[other], default=-1)
        steps.append(Step(group, duration, after, max(0.0, offset - (ends[after] if before else 0.0)), switch))
    return Member(job_id, period_s, tuple(steps), max(0.0, period_s - max(ends, default=0.0)), start_s)


def slowdowns(members: Sequence[Member], num_periods: int = NUM_PERIODS, order: Orders = Hrrs) -> dict[str, float]:
    """T_co / T_solo by job, all of them running all the time, on groups of this order; at least 1."""
    run = CoRun(members, order)
    run.until(num_periods)
    return run.slowdowns()


START = -1
"""Instead of a step: a period begins."""


class _Phase:
    """A step of a member, or its `START`. `group`: where it has to be served; None if nobody is ever met there."""

    __slots__ = ("duration_s", "followers", "group", "is_start", "key", "member")

    def __init__(self, key: Phase, duration_s: float, group: CoRunGroup | None) -> None:
        self.key, self.duration_s, self.group = key, duration_s, group
        self.member, self.is_start = key[0], key[1] == START
        self.followers: list[tuple[_Phase, float]] = []
        """What waits for its end, and for how much longer."""


_Event = tuple[float, int, _Phase, bool]
"""Time, number, phase, whether it has ended (else it is released)."""


class CoRun:
    """`periods` and `ended_s`: how many of each member have ended, and when the last one did."""

    def __init__(self, members: Sequence[Member], order: Orders = Hrrs) -> None:
        self._members = members
        self._phases = _phases_of(members, order)
        self._open = [0] * len(members)
        """Steps of the period that have not ended."""
        self.periods = [0] * len(members)
        self.ended_s = [member.start_s for member in members]
        self._ends_s: list[list[float]] = [[] for _ in members]
        """Of all periods."""
        self._num_events = 0
        self._numbers = count()
        self._now_s = -1.0
        self._events: list[_Event] = []
        """What is to come,"""
        self._at_once: list[_Event] = []
        """and what happens now: an event that an event brings about at the same moment comes after all that were known before."""
        for index, member in enumerate(members):
            heappush(self._events, (member.start_s, next(self._numbers), self._phases[index, START], True))

    def until(self, num_periods: int) -> None:
        """Every member has had so many, or there were MAX_EVENTS. Goes on from where it was: the same as all at once."""
        self._num_periods = num_periods
        left = sum(1 for member, had in zip(self._members, self.periods, strict=True) if member.steps and had < num_periods)
        while left and self._num_events < MAX_EVENTS:
            touched: list[CoRunGroup] = []
            for _, _, phase, has_ended in self._next_events():
                if not has_ended:
                    self._release(phase, touched)
                elif self._done(phase, touched):
                    left -= self._count_period(phase.member)
            self._num_events += len(self._at_once)
            self._at_once.clear()
            for group in touched:
                if group.num_waiting and not group.is_busy:
                    self._serve(group)

    def _next_events(self) -> list[_Event]:
        """Of the next moment, in order; it grows while those happen."""
        events, happening = self._events, self._at_once
        happening.append(heappop(events))
        self._now_s = now_s = happening[0][0]
        while events and events[0][0] == now_s:
            happening.append(heappop(events))
        return happening

    def slowdowns(self) -> dict[str, float]:
        return {member.job_id: self.slowdown(index) for index, member in enumerate(self._members)}

    def slowdown(self, index: int) -> float:
        member, periods = self._members[index], self.periods[index]
        if not member.steps:
            return 1.0
        if not periods:
            return float("inf")
        if periods < self._num_periods:  # MAX_EVENTS came first, perhaps since others always go before it.
            return max(1.0, (self._now_s - member.start_s) / ((periods + 1) * member.period_s))
        whole = (self.ended_s[index] - member.start_s) / (periods * member.period_s)
        later = periods - self._num_periods // 2
        half_s = self._ends_s[index][self._num_periods // 2 - 1] if self._num_periods > 1 else member.start_s
        half = (self.ended_s[index] - half_s) / (later * member.period_s) if later > 0 else 0.0
        return max(1.0, whole, half)

    def _will(self, at_s: float, phase: _Phase, has_ended: bool) -> None:
        """While something happens."""
        if at_s == self._now_s:
            self._at_once.append((at_s, 0, phase, has_ended))
        else:
            heappush(self._events, (at_s, next(self._numbers), phase, has_ended))

    def _count_period(self, member: int) -> bool:
        """Whether it has had as many as are wanted, with this one."""
        self.periods[member] += 1
        self._ends_s[member].append(self.ended_s[member])
        return self.periods[member] == self._num_periods

    def _done(self, phase: _Phase, touched: list[CoRunGroup]) -> bool:
        """Whether that ended a period. `touched`: groups that are to serve once all that happens now has happened."""
        now_s, member = self._now_s, phase.member
        for follower, gap_s in phase.followers:
            self._will(now_s + gap_s, follower, False)
        if phase.is_start:
            self._open[member] = len(self._members[member].steps)
            return False
        if phase.group is not None:
            phase.group.ended(now_s)
            touched.append(phase.group)
        self._open[member] -= 1
        return not self._open[member] and self._end_period(member)

    def _end_period(self, member: int) -> bool:
        self.ended_s[member] = ended_s = self._now_s + self._members[member].tail_s
        self._will(ended_s, self._phases[member, START], True)
        return True

    def _release(self, phase: _Phase, touched: list[CoRunGroup]) -> None:
        if phase.group is None:
            self._will(self._now_s + phase.duration_s, phase, True)
        else:
            phase.group.release(phase.key, self._now_s)
            touched.append(phase.group)

    def _serve(self, group: CoRunGroup) -> None:
        started = group.serve(self._now_s)
        if started is not None:
            heappush(self._events, (started[1], next(self._numbers), self._phases[started[0]], True))


def _phases_of(members: Sequence[Member], order: Orders) -> dict[Phase, _Phase]:
    groups = _groups_of(members, order)
    found: dict[Phase, _Phase] = {}
    for number, member in enumerate(members):
        found[number, START] = _Phase((number, START), 0.0, None)
        for index, step in enumerate(member.steps):
            group = groups[step.group]
            found[number, index] = _Phase((number, index), step.duration_s, group if group.is_contended else None)
        for index, step in enumerate(member.steps):
            found[number, step.after].followers.append((found[number, index], step.gap_s))
    return found


def _groups_of(members: Sequence[Member], order: Orders) -> dict[int, CoRunGroup]:
    groups: dict[int, CoRunGroup] = {}
    for number, member in enumerate(members):
        for index, step in enumerate(member.steps):
            if step.group not in groups:
                groups[step.group] = CoRunGroup(order)
            groups[step.group].add((number, index), step.duration_s, step.switch_s)
    return groups
