"""A co-run executed the slow way: every event on one heap, every phase of a group that several have through its queue,
whether anybody waits or not."""

import heapq
from collections.abc import Sequence

from plait.placement.corun import MAX_EVENTS, START, Member
from plait.placement.corun_group import LastServed, Orders, Phase
from plait.scheduling.function_call import FunctionCall
from plait.scheduling.group_queue import GroupQueue
from plait.scheduling.service_times import ServiceTimes


class SlowGroup:
    """Each phase is told once with `add`, before any is released; it is released again only after it has ended."""

    def __init__(self, order: Orders) -> None:
        self._services, self._setups = ServiceTimes(), LastServed()
        self.queue = GroupQueue(order(), self._services, self._setups)
        self._calls: dict[Phase, tuple[str, str, str]] = {}
        """call_id, deployment, function."""
        self._phases: dict[str, tuple[Phase, float]] = {}
        """By call_id; with what it takes."""
        self._running = ""
        self._released: list[FunctionCall] = []
        """Since the last time that it served."""
        self.is_contended = False
        """Whether a phase could ever find another one here."""

    def add(self, phase: Phase, duration_s: float, switch_s: float) -> None:
        member, step = phase
        names = f"{member}/{step}", f"{member}/{switch_s}", str(step)
        self._calls[phase], self._phases[names[0]] = names, (phase, duration_s)
        self.is_contended = len(self._phases) > 1
        self._setups.add(names[1], member, switch_s)
        self._services.observe(self._call(phase, 0.0), duration_s)

    def release(self, phase: Phase, now_s: float) -> None:
        """It waits from now on; `serve` follows, once all that are released now are."""
        self._released.append(self._call(phase, now_s))

    def serve(self, now_s: float) -> tuple[Phase, float] | None:
        """The phase that starts now, and when it ends; None if one runs, or none waits."""
        call = self._next(now_s)
        if call is None:
            return None
        phase, duration_s = self._phases[call.call_id]
        end_s = now_s + duration_s + self._setups.setup_s(call.deployment)
        self._setups.resident, self._running = phase[0], call.call_id
        return phase, end_s

    def _next(self, now_s: float) -> FunctionCall | None:
        for call in self._released:
            self.queue.add(call)
        self._released = []
        return self.queue.next(now_s)

    def ended(self, now_s: float) -> None:
        """What runs. That it took what is known tells the queue nothing."""
        self.queue.done(self._running, None, now_s)

    def _call(self, phase: Phase, now_s: float) -> FunctionCall:
        """Of a stream of its own: what it has to wait for, the co-run knows."""
        call_id, deployment, function = self._calls[phase]
        return FunctionCall(call_id, deployment, function, function, 0, now_s)


class SlowCoRun:
    """`periods` and `ended_s`: how many of each member have ended, and when the last one did."""

    def __init__(self, members: Sequence[Member], order: Orders) -> None:
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
            touched: list[SlowGroup] = []
            while self._events and self._events[0][0] == now_s:
                _, _, phase, has_ended = heapq.heappop(self._events)
                self._num_events += 1
                if not has_ended:
                    self._release(now_s, phase, touched)
                elif self._done(now_s, phase, touched):
                    left -= self._count_period(phase[0])
            for group in touched:
                self._serve(now_s, group)

    def _push(self, at_s: float, phase: Phase, has_ended: bool) -> None:
        self._order += 1
        heapq.heappush(self._events, (at_s, self._order, phase, has_ended))

    def _count_period(self, member: int) -> bool:
        """Whether it has had as many as are wanted, with this one."""
        self.periods[member] += 1
        self._ends_s[member].append(self.ended_s[member])
        return self.periods[member] == self._num_periods

    def _done(self, now_s: float, phase: Phase, touched: list[SlowGroup]) -> bool:
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

    def _release(self, now_s: float, phase: Phase, touched: list[SlowGroup]) -> None:
        member, index = phase
        group, duration_s = self._steps[member][index]
        if group.is_contended:
            group.release(phase, now_s)
            touched.append(group)
        else:
            self._push(now_s + duration_s, phase, True)

    def _serve(self, now_s: float, group: SlowGroup) -> None:
        started = group.serve(now_s)
        if started is not None:
            phase, end_s = started
            self._push(end_s, phase, True)


def _groups_of(members: Sequence[Member], order: Orders) -> dict[int, SlowGroup]:
    groups: dict[int, SlowGroup] = {}
    for number, member in enumerate(members):
        for index, step in enumerate(member.steps):
            if step.group not in groups:
                groups[step.group] = SlowGroup(order)
            groups[step.group].add((number, index), step.duration_s, step.switch_s)
    return groups


def _followers_of(number: int, member: Member) -> list[list[tuple[Phase, float]]]:
    """By step, of `START` last: which phases follow, and after which gap."""
    found: list[list[tuple[Phase, float]]] = [[] for _ in range(len(member.steps) + 1)]
    for index, step in enumerate(member.steps):
        found[step.after].append(((number, index), step.gap_s))
    return found
