"""How much slower jobs run that share groups: their overlapped timelines, executed.

- A group is a worker group's own queue and order (`scheduling`): it serves one phase at a time, to its end, and next the one that
  the order picks, from all that has been released by that moment. Setup is 0 for the job served last.
- A job is a closed loop. A phase is released when all phases that end before its start, in the profile, are done, plus the gap
  between; the next period begins when all are done, plus the gap that the profile has at the end. So a phase with slack (training
  beside the next rollout) delays nothing until the slack is used up.
- T_co is the mean period over NUM_PERIODS or more, or over the second half of them if that is longer: jobs that do not meet at
  first may drift into each other later. T_solo is the profile's period.
"""

import heapq
from collections.abc import Sequence

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


class CoRun:
    """`periods` and `ended_s`: how many of each member have ended, and when the last one did."""

    def __init__(self, members: Sequence[Member], order: Orders = Hrrs) -> None:
        self._members = members
        groups = _groups_of(members, order)
        self._steps = [[(groups[step.group], step.duration_s) for step in member.steps] for member in members]
        self._followers = [_followers_of(number, member) for number, member in enumerate(members)]
        self._open = [0] * len(members)
        """Steps of the period that have not ended."""
        self.periods = [0] * len(members)
        self.ended_s = [member.start_s for member in members]
        self._ends_s: list[list[float]] = [[] for _ in members]
        """Of all periods."""
        self._num_events = 0
        self._order = 0
        self._events: list[tuple[float, int, Phase, bool]] = []
        """Time, number, phase, whether it has ended (else it is released)."""
        for index, member in enumerate(members):
            self._push(member.start_s, (index, START), True)

    def until(self, num_periods: int) -> None:
        """Every member has had so many, or there were MAX_EVENTS. Goes on from where it was: the same as all at once."""
        self._num_periods = num_periods
        left = sum(1 for member, had in zip(self._members, self.periods, strict=True) if member.steps and had < num_periods)
        while left and self._num_events < MAX_EVENTS:
            self._now_s = now_s = self._events[0][0]
            touched: list[CoRunGroup] = []
            while self._events and self._events[0][0] == now_s:
                _, _, phase, has_ended = heapq.heappop(self._events)
                self._num_events += 1
                if not has_ended:
                    self._release(now_s, phase, touched)
                elif self._done(now_s, phase, touched):
                    left -= self._count_period(phase[0])
            for group in touched:
                self._serve(now_s, group)

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

    def _push(self, at_s: float, phase: Phase, has_ended: bool) -> None:
        self._order += 1
        heapq.heappush(self._events, (at_s, self._order, phase, has_ended))

    def _count_period(self, member: int) -> bool:
        """Whether it has had as many as are wanted, with this one."""
        self.periods[member] += 1
        self._ends_s[member].append(self.ended_s[member])
        return self.periods[member] == self._num_periods

    def _done(self, now_s: float, phase: Phase, touched: list[CoRunGroup]) -> bool:
        """Whether that ended a period. `touched`: groups that are to serve once all that happens now has happened."""
        member, step = phase
        for follower, gap_s in self._followers[member][step]:
            self._push(now_s + gap_s, follower, False)
        if step == START:
            self._open[member] = len(self._steps[member])
            return False
        self._open[member] -= 1
        group = self._steps[member][step][0]
        if group.is_contended:
            group.ended(now_s)
            touched.append(group)
        if self._open[member]:
            return False
        self.ended_s[member] = now_s + self._members[member].tail_s
        self._push(self.ended_s[member], (member, START), True)
        return True

    def _release(self, now_s: float, phase: Phase, touched: list[CoRunGroup]) -> None:
        member, index = phase
        group, duration_s = self._steps[member][index]
        if group.is_contended:
            group.release(phase, now_s)
            touched.append(group)
        else:
            self._push(now_s + duration_s, phase, True)

    def _serve(self, now_s: float, group: CoRunGroup) -> None:
        started = group.serve(now_s)
        if started is not None:
            phase, end_s = started
            self._push(end_s, phase, True)


def _groups_of(members: Sequence[Member], order: Orders) -> dict[int, CoRunGroup]:
    groups: dict[int, CoRunGroup] = {}
    for number, member in enumerate(members):
        for index, step in enumerate(member.steps):
            if step.group not in groups:
                groups[step.group] = CoRunGroup(order)
            groups[step.group].add((number, index), step.duration_s, step.switch_s)
    return groups


def _followers_of(number: int, member: Member) -> list[list[tuple[Phase, float]]]:
    """By step, of `START` last: which phases follow, and after which gap."""
    found: list[list[tuple[Phase, float]]] = [[] for _ in range(len(member.steps) + 1)]
    for index, step in enumerate(member.steps):
        found[step.after].append(((number, index), step.gap_s))
    return found
