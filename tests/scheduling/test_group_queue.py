"""Against a list that is searched each time, with every order."""

import math

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from plait.scheduling.function_call import FunctionCall
from plait.scheduling.group_queue import GroupQueue
from plait.scheduling.orders import ORDERS, Fifo, Hrrs, Order
from plait.scheduling.resident_slots import ResidentSlots
from plait.scheduling.service_times import ServiceTimes
from plait.scheduling.setup_times import SetupTimes
from plait.types.errors import PlaitError
from tests.scheduling.slow_queue import SLOW_ORDERS, SlowQueue

DEPLOYMENTS = "abc"


def call_of(number: int, deployment: str = "a", arrival_s: float = 0.0, stream: str = "s", size: int = 8) -> FunctionCall:
    return FunctionCall(str(number), deployment, "forward", stream, size, arrival_s)


def queue_of(setup_s: float = 1.0) -> tuple[GroupQueue, ResidentSlots]:
    slots = ResidentSlots(SetupTimes(setup_s))
    return GroupQueue(Hrrs(lookahead=0), ServiceTimes(), slots), slots


def make_order(name: str) -> Order:
    """With a cut-off that is never reached, as the slow queue has none."""
    lookaheads = {"hrrs": 0.0, "looking-ahead": 1.0}
    return Hrrs(lookaheads[name], max_score=1e9) if name in lookaheads else ORDERS[name]()


class QueueMachine(RuleBasedStateMachine):
    @initialize(order=st.sampled_from(sorted(SLOW_ORDERS)), setup_s=st.sampled_from((0.5, 3.0)))
    def begin(self, order: str, setup_s: float) -> None:
        self.services = ServiceTimes()
        self.slots = ResidentSlots(SetupTimes(setup_s))
        self.queue = GroupQueue(make_order(order), self.services, self.slots)
        self.slow = SlowQueue(SLOW_ORDERS[order])
        self.now_s = 100.0
        self.number = 0

    @rule(
        deployment=st.sampled_from(DEPLOYMENTS),
        stream=st.sampled_from("xyz"),
        function=st.sampled_from(("forward", "save")),
        size=st.sampled_from((0, 4, 5, 100)),
        age_s=st.sampled_from((0.0, 0.0, 0.0, 7.0)),
    )
    def add(self, deployment: str, stream: str, function: str, size: int, age_s: float) -> None:
        self.number += 1
        call = FunctionCall(str(self.number), deployment, function, stream, size, self.now_s - age_s)
        self.queue.add(call)
        self.slow.calls.append(call)

    @precondition(lambda self: not self.slow.running and not self.slow.calls)
    @rule(deployment=st.sampled_from(DEPLOYMENTS), size=st.sampled_from((0, 4, 100)))
    def start(self, deployment: str, size: int) -> None:
        """As adding it, and taking the next."""
        self.number += 1
        call = FunctionCall(str(self.number), deployment, "forward", "x", size, self.now_s)
        self.queue.start(call, self.now_s)
        self.slow.calls.append(call)
        self.slow.start(call)
        self.slots.enter(deployment)

    @rule(seconds=st.sampled_from((0.5, 2.0)))
    def pass_time(self, seconds: float) -> None:
        self.now_s += seconds

    @rule()
    def next(self) -> None:
        expected = None if self.slow.running else self.slow.peek(self.now_s, self.services.estimate_s, self.slots.setup_s)
        assert self.queue.next(self.now_s) == expected
        if expected:
            self.slow.start(expected)
            self.slots.enter(expected.deployment)

    @precondition(lambda self: self.slow.running)
    @rule(service_s=st.sampled_from((None, 0.0, 1.0, 5.0)))
    def done(self, service_s: float | None) -> None:
        assert self.slow.running
        self.now_s += service_s or 0.0
        self.queue.done(self.slow.running.call_id, service_s, self.now_s)
        self.slow.running = None

    @precondition(lambda self: self.slow.running)
    @rule()
    def put_back(self) -> None:
        assert self.slow.running
        self.queue.put_back(self.slow.running.call_id)
        self.slow.put_back()

    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        call_id = str(data.draw(st.integers(1, max(self.number, 1))))
        left = [call for call in self.slow.calls if call.call_id != call_id]
        assert self.queue.remove(call_id) == (len(left) < len(self.slow.calls))
        self.slow.calls = left

    @invariant()
    def agrees(self) -> None:
        assert len(self.queue) == len(self.slow.calls)
        assert self.queue.running == self.slow.running
        assert self.queue.peek(self.now_s) == self.slow.peek(self.now_s, self.services.estimate_s, self.slots.setup_s)
        for name in DEPLOYMENTS:
            self._agrees_about(name)

    def _agrees_about(self, name: str) -> None:
        mine = [call for call in self.slow.calls if call.deployment == name]
        firsts = {stream: next(c for c in mine if c.stream == stream) for stream in {c.stream for c in mine}}
        oldest = min((call.arrival_s for call in firsts.values()), default=None)
        assert self.queue.waiting(name) == (len(mine), oldest)
        assert self.queue.another_waits(name) == (len(mine) < len(self.slow.calls))


QueueMachine.TestCase.settings = settings(max_examples=120, stateful_step_count=40, deadline=None)
TestGroupQueue = QueueMachine.TestCase


def test_one_call_at_a_time() -> None:
    queue, _ = queue_of()
    assert queue.next(0.0) is None
    queue.add(call_of(1))
    queue.add(call_of(2, stream="t"))
    assert queue.next(0.0) == call_of(1)
    assert queue.next(0.0) is None
    queue.done("1", 1.0, 1.0)
    assert queue.next(1.0) == call_of(2, stream="t")


def test_a_stream_keeps_its_order_though_a_later_call_is_shorter() -> None:
    queue, _ = queue_of()
    sizes = (4096, 1, 64)
    for number, size in enumerate(sizes):
        queue.add(call_of(number, size=size))
    order = []
    for _ in sizes:
        call = queue.next(9.0)
        assert call
        order.append(call.size_tokens)
        queue.done(call.call_id, None, 9.0)
    assert order == [4096, 1, 64]


def test_what_is_resident_goes_first_until_the_other_has_waited_for_its_setup() -> None:
    queue, slots = queue_of(setup_s=4.5)
    slots.enter("a")
    queue.add(call_of(0, "b", 0.0))
    queue.add(call_of(1, "a", 8.0))
    assert queue.peek(9.0) == call_of(1, "a", 8.0), "1 + 1 / 1 against 1 + 9 / (1 + 4.5 + 4.5)"
    assert queue.peek(8.5) == call_of(0, "b", 0.0), "1 + 0.5 / 1 against 1 + 8.5 / 10"


def test_the_same_id_twice_is_refused() -> None:
    queue, _ = queue_of()
    queue.add(call_of(1))
    with pytest.raises(PlaitError, match="'1' waits or runs"):
        queue.add(call_of(1))
    queue.next(0.0)
    with pytest.raises(PlaitError, match="'1' waits or runs"):
        queue.add(call_of(1))


@pytest.mark.parametrize(("size", "arrival_s"), [(-1, 0.0), (1, math.nan), (1, math.inf)])
def test_numbers_without_a_sense_are_refused(size: int, arrival_s: float) -> None:
    queue, _ = queue_of()
    with pytest.raises(PlaitError, match="size_tokens"):
        queue.add(call_of(1, size=size, arrival_s=arrival_s))
    assert len(queue) == 0


@pytest.mark.parametrize("service_s", [-1.0, math.nan])
def test_a_time_without_a_sense_ends_nothing(service_s: float) -> None:
    queue, _ = queue_of()
    queue.add(call_of(1))
    queue.next(0.0)
    with pytest.raises(PlaitError, match="service_s"):
        queue.done("1", service_s, 1.0)
    assert queue.running == call_of(1)
    queue.done("1", 1.0, 1.0)


def test_only_what_runs_can_end() -> None:
    queue, _ = queue_of()
    queue.add(call_of(1))
    for end in (lambda: queue.done("1", 1.0, 0.0), lambda: queue.put_back("1")):
        with pytest.raises(PlaitError, match="does not run"):
            end()


def test_totals() -> None:
    queue = GroupQueue(Fifo(), ServiceTimes(), ResidentSlots(SetupTimes()))
    for number, deployment in enumerate("abb"):
        queue.add(call_of(number, deployment))
    now_s = 0.0
    for service_s in (1.0, None, 2.0):
        call = queue.next(now_s)
        assert call
        now_s += 2.5
        queue.done(call.call_id, service_s, now_s)
    totals = queue.totals
    assert (totals.num_calls, totals.num_switches) == (3, 1)
    assert (totals.waited_s, totals.service_s, totals.overhead_s) == (7.5, 3.0, 4.5)


def test_calls_that_came_and_went_leave_nothing_behind() -> None:
    queue, _ = queue_of()
    for number in range(2000):
        queue.add(call_of(number, DEPLOYMENTS[number % 3], float(number), str(number % 7), number))
        call = queue.next(number + 1.0) if number % 2 else None
        if call:
            queue.done(call.call_id, 1.0, number + 1.0)
    for number in range(2000):
        queue.remove(str(number))
    fronts = queue._fronts
    kept = [queue._streams, queue._entries, queue._num_waiting, fronts.calls, fronts._keys, fronts._fronts, fronts._behind]
    assert not any(kept)
    assert not fronts._entries


def test_nothing_starts_past_what_waits_or_runs() -> None:
    queue, _ = queue_of()
    queue.start(call_of(1), 0.0)
    with pytest.raises(PlaitError, match="call '2' cannot start: others wait or run"):
        queue.start(call_of(2), 0.0)
    queue.add(call_of(2))
    queue.done("1", 1.0, 1.0)
    with pytest.raises(PlaitError, match="call '3' cannot start"):
        queue.start(call_of(3), 1.0)
    assert queue.totals.num_calls == 1
