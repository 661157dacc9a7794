"""Runs a queue, and notes what overtook what."""

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import mean

from plait.scheduling.function_call import FunctionCall
from plait.scheduling.group_queue import GroupQueue
from plait.scheduling.hrrs import Hrrs, expected_s
from plait.scheduling.resident_slots import ResidentSlots
from plait.scheduling.service_times import ServiceTimes
from plait.scheduling.setup_times import SetupTimes


@dataclass(frozen=True, slots=True)
class Step:
    """What a stream asks: `after_s` the one before it ended (or, in an open load, arrived), for a time that may be unexpected."""

    after_s: float
    size_tokens: int
    service_s: float


@dataclass
class Passing:
    """A call that started while another waited that had come first."""

    call: FunctionCall
    cost_s: float
    """Expected as it was picked."""
    start_s: float
    end_s: float = 0.0


@dataclass
class Record:
    call: FunctionCall
    cost_s: float = 0.0
    """The most expected of it, and of those of its stream before it, at any decision."""
    ahead_s: float = 0.0
    """The furthest that any decision looked ahead."""
    start_s: float = 0.0
    before_s: float = 0.0
    """How long others ran after its arrival that had arrived before it."""
    passings: list[Passing] = field(default_factory=list)


class Watched(Hrrs):
    def pick(
        self,
        heads: Sequence[FunctionCall],
        now_s: float,
        service_s: Callable[[FunctionCall], float],
        setup_s: Callable[[str], float],
    ) -> FunctionCall:
        self.ahead_s = self.lookahead * mean(expected_s(heads, service_s, setup_s))
        return super().pick(heads, now_s, service_s, setup_s)


class Trial:
    """`streams`: (deployment, stream) -> steps. Closed: each call of a stream arrives after the one before it ended."""

    def __init__(self, streams: Mapping[tuple[str, str], Sequence[Step]], order: Watched, setup_s: float, is_closed: bool) -> None:
        self.services = ServiceTimes()
        self.slots = ResidentSlots(SetupTimes(setup_s))
        self.order = order
        self.queue = GroupQueue(order, self.services, self.slots)
        self.steps = {key: list(steps) for key, steps in streams.items()}
        self.is_closed = is_closed
        self.events: list[tuple[float, int, tuple[str, str], Step]] = []
        self.num_calls = 0
        self.waiting: list[Record] = []
        self.service_of: dict[str, float] = {}
        self.now_s = 0.0

    def run(self) -> list[Record]:
        """All calls, in the order in which they started."""
        found = []
        for key in self.steps:
            self._plan(key, 0.0)
        while self.events or self.waiting:
            if not self.waiting:
                self.now_s = max(self.now_s, self.events[0][0])
            self._arrive()
            found.append(self._serve())
        return found

    def _plan(self, key: tuple[str, str], after_s: float) -> None:
        while self.steps[key]:
            step = self.steps[key].pop(0)
            after_s += step.after_s
            self.num_calls += 1
            heapq.heappush(self.events, (after_s, self.num_calls, key, step))
            if self.is_closed:
                return

    def _arrive(self) -> None:
        while self.events and self.events[0][0] <= self.now_s:
            arrival_s, number, (deployment, stream), step = heapq.heappop(self.events)
            call = FunctionCall(str(number), deployment, "forward", stream, step.size_tokens, arrival_s)
            self.service_of[call.call_id] = step.service_s
            self.queue.add(call)
            self.waiting.append(Record(call))

    def _cost_s(self, call: FunctionCall) -> float:
        return self.services.estimate_s(call) + self.slots.setup_s(call.deployment)

    def _serve(self) -> Record:
        self._note_costs()
        call = self.queue.next(self.now_s)
        assert call
        for record in self.waiting:
            record.ahead_s = max(record.ahead_s, self.order.ahead_s)
        record = next(record for record in self.waiting if record.call == call)
        record.start_s = self.now_s
        passing = Passing(call, self._cost_s(call), self.now_s)
        place = self.waiting.index(record)
        self.waiting.remove(record)
        self._run(call)
        passing.end_s = self.now_s
        for other in self.waiting[:place]:
            other.passings.append(passing)
        for other in self.waiting[place:]:
            other.before_s += self.now_s - passing.start_s
        return record

    def _note_costs(self) -> None:
        longest: dict[tuple[str, str], float] = {}
        for record in self.waiting:
            key = record.call.deployment, record.call.stream
            longest[key] = max(longest.get(key, 0.0), self._cost_s(record.call))
            record.cost_s = max(record.cost_s, longest[key])

    def _run(self, call: FunctionCall) -> None:
        service_s = self.service_of[call.call_id]
        self.now_s += self.slots.setup_s(call.deployment) + service_s
        self.slots.enter(call.deployment)
        self.queue.done(call.call_id, service_s, self.now_s)
        if self.is_closed:
            self._plan((call.deployment, call.stream), self.now_s)
