"""How much slower jobs run that share groups: their overlapped timelines, executed.

- A group serves one phase at a time, to its end (non-preemptive), and next the one with the highest response ratio with setup time
  (HRRS, PlexRL): 1 + wait / (service + setup); the first come on ties. Setup is 0 for the job served last.
- A job is a closed loop. A phase is released when all phases that end before its start, in the profile, are done, plus the gap
  between; the next period begins when all are done, plus the gap that the profile has at the end. So a phase with slack (training
  beside the next rollout) delays nothing until the slack is used up.
- T_co is the mean period over NUM_PERIODS or more, or over the second half of them if that is longer: jobs that do not meet at
  first may drift into each other later. T_solo is the profile's period.
"""

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

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


def slowdowns(members: Sequence[Member], num_periods: int = NUM_PERIODS) -> dict[str, float]:
    """T_co / T_solo by job, all of them running all the time; at least 1."""
    run = _CoRun(members)
    run.until(num_periods)
    return {member.job_id: run.slowdown(index) for index, member in enumerate(members)}


def hrrs(waits_s: Sequence[float], work_s: Sequence[float]) -> int:
    """Index of the highest 1 + wait / (service + setup), the first on ties."""
    ratios = [wait / max(work, 1e-9) for wait, work in zip(waits_s, work_s, strict=True)]
    return ratios.index(max(ratios))


@dataclass(slots=True)
class _Group:
    busy: bool = False
    resident: int = -1
    waiting: list[tuple[float, int, int]] = field(default_factory=list)
    """Arrival, member, step; in order of arrival."""


class _CoRun:
    """Events: (time, order, member, step, kind); step -1 is the start of a period."""

    RELEASE, DONE = 0, 1

    def __init__(self, members: Sequence[Member]) -> None:
        self._members = members
        self._groups: Mapping[int, _Group] = {step.group: _Group() for member in members for step in member.steps}
        self._followers = [self._followers_of(member) for member in members]
        self._open = [0] * len(members)
        self._periods = [0] * len(members)
        self._ended_s = [member.start_s for member in members]
        self._half_s = [float("inf")] * len(members)
        self._order = 0
        self._events: list[tuple[float, int, int, int, int]] = []
        for index, member in enumerate(members):
            self._push(member.start_s, index, -1, self.DONE)

    @staticmethod
    def _followers_of(member: Member) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for index, step in enumerate(member.steps):
            found.setdefault(step.after, []).append(index)
        return found

    def until(self, num_periods: int) -> None:
        self._num_periods = num_periods
        left = sum(1 for member in self._members if member.steps)
        for _ in range(MAX_EVENTS):
            if not left:
                return
            now_s, _, member, step, kind = heapq.heappop(self._events)
            if kind == self.RELEASE:
                self._release(now_s, member, step)
            elif self._done(now_s, member, step):
                left -= self._periods[member] == num_periods
                if self._periods[member] == num_periods // 2:
                    self._half_s[member] = self._ended_s[member]

    def slowdown(self, index: int) -> float:
        member, periods = self._members[index], self._periods[index]
        if not member.steps:
            return 1.0
        if not periods:
            return float("inf")
        whole = (self._ended_s[index] - member.start_s) / (periods * member.period_s)
        later = periods - self._num_periods // 2
        half = (self._ended_s[index] - self._half_s[index]) / (later * member.period_s) if later > 0 else 0.0
        return max(1.0, whole, half)

    def _push(self, at_s: float, member: int, step: int, kind: int) -> None:
        self._order += 1
        heapq.heappush(self._events, (at_s, self._order, member, step, kind))

    def _done(self, now_s: float, member: int, step: int) -> bool:
        """Whether that ended a period."""
        steps = self._members[member].steps
        if step < 0:
            self._open[member] = len(steps)
        else:
            self._open[member] -= 1
            self._groups[steps[step].group].busy = False
        for follower in self._followers[member].get(step, ()):
            self._push(now_s + steps[follower].gap_s, member, follower, self.RELEASE)
        if step >= 0:
            self._serve(now_s, steps[step].group)
        if step < 0 or self._open[member]:
            return False
        self._periods[member] += 1
        self._ended_s[member] = now_s + self._members[member].tail_s
        self._push(self._ended_s[member], member, -1, self.DONE)
        return True

    def _release(self, now_s: float, member: int, step: int) -> None:
        group = self._members[member].steps[step].group
        self._groups[group].waiting.append((now_s, member, step))
        self._serve(now_s, group)

    def _serve(self, now_s: float, group_id: int) -> None:
        group = self._groups[group_id]
        if group.busy or not group.waiting:
            return
        works = [self._work_s(group, member, step) for _, member, step in group.waiting]
        chosen = hrrs([now_s - arrival for arrival, _, _ in group.waiting], works) if len(works) > 1 else 0
        _, member, step = group.waiting.pop(chosen)
        group.busy, group.resident = True, member
        self._push(now_s + works[chosen], member, step, self.DONE)

    def _work_s(self, group: _Group, member: int, step: int) -> float:
        chosen = self._members[member].steps[step]
        return chosen.duration_s + (chosen.switch_s if group.resident not in (member, -1) else 0.0)
