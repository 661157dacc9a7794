"""An exact, slow replay of a co-run: everything is looked at whenever anything ends.

A free group takes the phase with the highest (wait + ahead) / (service + setup), where ahead is 8 times the mean service + setup of
those that wait; the first come on ties.
"""

from collections.abc import Sequence

from plait.placement.corun import Member


def replay(members: Sequence[Member], num_periods: int) -> dict[str, list[float]]:
    """The length of every period of every job, in seconds, until each has had so many."""
    state = [_Job(member) for member in members]
    resident: dict[int, int] = {}
    now_s = 0.0
    while any(len(job.periods_s) < num_periods for job in state):
        for job in state:
            job.finish_until(now_s)
        for group in {step.group for member in members for step in member.steps}:
            _serve(group, state, resident, now_s)
        now_s = min(at for job in state for at in job.moments() if at > now_s)
    return {job.member.job_id: job.periods_s for job in state}


def _serve(group: int, state: Sequence["_Job"], resident: dict[int, int], now_s: float) -> None:
    if any(job.member.steps[step].group == group for job in state for step in job.ends):
        return
    waiting: list[tuple[float, int, int, float]] = []
    for number, job in enumerate(state):
        for step in range(len(job.member.steps)):
            released = job.released_s(step)
            if job.member.steps[step].group != group or released is None or released > now_s:
                continue
            is_resident = resident.get(group, number) == number
            work_s = job.member.steps[step].duration_s + (0 if is_resident else job.member.steps[step].switch_s)
            waiting.append((released, number, step, work_s))
    if waiting:
        ahead_s = 8 * sum(work_s for *_, work_s in waiting) / len(waiting)
        _, number, step, work_s = max(waiting, key=lambda phase: (min(99, (now_s + ahead_s - phase[0]) / phase[3]), -phase[0]))
        resident[group] = number
        state[number].ends[step] = now_s + work_s


class _Job:
    def __init__(self, member: Member) -> None:
        self.member = member
        self.periods_s: list[float] = []
        self._begin(member.start_s)

    def _begin(self, at_s: float) -> None:
        self.began_s = at_s
        self.ends: dict[int, float] = {}
        self.done: dict[int, float] = {}

    def finish_until(self, now_s: float) -> None:
        for step in [step for step, end in self.ends.items() if end <= now_s]:
            self.done[step] = self.ends.pop(step)
        if len(self.done) == len(self.member.steps):
            end_s = max(self.done.values()) + self.member.tail_s
            self.periods_s.append(end_s - self.began_s)
            self._begin(end_s)

    def released_s(self, step: int) -> float | None:
        """When it may start; None if that is not known yet, or it has started."""
        if step in self.ends or step in self.done:
            return None
        chosen = self.member.steps[step]
        before = self.began_s if chosen.after < 0 else self.done.get(chosen.after)
        return None if before is None else before + chosen.gap_s

    def moments(self) -> list[float]:
        """Every time at which something may happen."""
        released = [self.released_s(step) for step in range(len(self.member.steps))]
        return [self.began_s, *self.ends.values(), *(at for at in released if at is not None)]
