"""The buffer against a slow oracle, which looks at every tenant at every take; and its promises, told from what it gave alone."""

import math
import time
from collections import Counter
from fractions import Fraction
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from plait.operations.fair_share import FairShareBuffer, WeightError
from plait.rollout.buffer import RequestBuffer
from plait.rollout.buffer_scheduler import BufferScheduler
from plait.rollout.request import GenerationRequest
from plait.rollout.service import RolloutService
from plait.types.policy import PolicyVersion
from plait.types.sampling import SamplingParams
from tests.rollout.fake_engine import FakeEngine
from tests.rollout.on_loop import CACHE_TOKENS, ENGINE, expected, on_loop, serve, settle, start
from tests.rollout.on_loop import request as served

WEIGHTS = {"ada": 1.0, "bob": 2.0, "cy": 0.5}
"""Powers of two: virtual times are exact."""
turns = st.integers(1, 3)


def request(request_id: str, tenant: str = "ada", queue: str = "sums", num_tokens: int = 1) -> GenerationRequest:
    return GenerationRequest(request_id, queue, PolicyVersion(tenant, queue, 0), None, (1,) * num_tokens, SamplingParams(8))


def weighted(turn_chunks: int = 1) -> FairShareBuffer:
    buffer = FairShareBuffer(turn_chunks)
    for tenant, weight in WEIGHTS.items():
        buffer.set_weight(tenant, weight)
    return buffer


class Oracle:
    """Start-time fair queueing over one RequestBuffer for each tenant, as the paper has it: a list, searched each time."""

    def __init__(self, turn_chunks: int) -> None:
        self.turn_chunks = turn_chunks
        self.lanes = {tenant: RequestBuffer(turn_chunks) for tenant in WEIGHTS}
        self.finish = dict.fromkeys(WEIGHTS, Fraction(0))
        self.line: list[tuple[Fraction, str]] = []
        """(start, tenant) in the order of lining up."""
        self.virtual_time = Fraction(0)
        self.served = ""
        self.num_served = 0

    def line_up(self, tenant: str) -> None:
        if tenant != self.served and tenant not in [name for _, name in self.line]:
            self.finish[tenant] = max(self.virtual_time, self.finish[tenant])
            self.line.append((self.finish[tenant], tenant))

    def end_turn(self) -> None:
        tenant, self.served = self.served, ""
        if self.lanes[tenant].num_waiting:
            self.line_up(tenant)

    def take(self) -> str | None:
        if self.served and not self.lanes[self.served].num_waiting:
            self.end_turn()
        if not self.served and not self._choose():
            return None
        lane = self.lanes[self.served]
        taken = lane.take()
        assert taken is not None
        self.finish[self.served] += Fraction(1) / Fraction(WEIGHTS[self.served])
        self.num_served += 1
        if lane._turn is None or self.num_served == self.turn_chunks:
            self.end_turn()
        return taken.request_id

    def _choose(self) -> bool:
        """The first to have lined up of those that start first; one without requests has left."""
        while self.line:
            start, tenant = min(self.line, key=lambda item: item[0])
            self.line.remove((start, tenant))
            if self.lanes[tenant].num_waiting:
                self.virtual_time, self.served, self.num_served = start, tenant, 0
                return True
        return False


class FairShareMachine(RuleBasedStateMachine):
    """Adds, takes, requeues, finishes, removes and loses the engine, in any order."""

    turn_chunks = 1

    def __init__(self) -> None:
        super().__init__()
        self.buffer = weighted(self.turn_chunks)
        self.oracle = Oracle(self.turn_chunks)
        self.tenants: list[str] = []
        self.running: list[int] = []
        self.here: list[int] = []

    def _lane(self, number: int) -> RequestBuffer:
        return self.oracle.lanes[self.tenants[number]]

    @rule(tenant=st.sampled_from(sorted(WEIGHTS)), queue=st.sampled_from("xy"), count=st.integers(1, 3))
    def add(self, tenant: str, queue: str, count: int) -> None:
        for _ in range(count):
            number = len(self.tenants)
            self.tenants.append(tenant)
            self.here.append(number)
            self.buffer.add(request(str(number), tenant, queue))
            self._lane(number).add(request(str(number), tenant, queue))
            self.oracle.line_up(tenant)

    @rule(count=st.integers(1, 4))
    def take(self, count: int) -> None:
        for _ in range(count):
            taken, expected = self.buffer.take(), self.oracle.take()
            assert (taken and taken.request_id) == expected
            if taken is not None:
                self.running.append(int(taken.request_id))

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def requeue(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(self.running))
        self.running.remove(number)
        self.buffer.requeue(str(number))
        self._lane(number).requeue(str(number))
        self.oracle.line_up(self.tenants[number])

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(self.running))
        self.running.remove(number)
        self.here.remove(number)
        assert self.buffer.finish(str(number)).request_id == str(number)
        self._lane(number).finish(str(number))

    @precondition(lambda self: self.tenants)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        number = data.draw(st.integers(0, len(self.tenants) - 1))
        assert self.buffer.remove(str(number)) == (number in self.running)
        self._lane(number).remove(str(number))
        for numbers in (self.running, self.here):
            if number in numbers:
                numbers.remove(number)

    @rule(tenant=st.sampled_from(sorted(WEIGHTS)), queue=st.sampled_from("xy"))
    def cancel_what_waits(self, tenant: str, queue: str) -> None:
        waiting = [r for r in self.oracle.lanes[tenant] if r.queue == queue and int(r.request_id) not in self.running]
        for cancelled in waiting:
            assert not self.buffer.remove(cancelled.request_id)
            self.oracle.lanes[tenant].remove(cancelled.request_id)
            self.here.remove(int(cancelled.request_id))

    @rule()
    def lose_engine(self) -> None:
        self.buffer.requeue_running()
        for number in sorted(self.running):
            self._lane(number).requeue(str(number))
            self.oracle.line_up(self.tenants[number])
        self.running.clear()

    @invariant()
    def counts_agree(self) -> None:
        assert (self.buffer.num_running, self.buffer.num_waiting) == (len(self.running), len(self.here) - len(self.running))
        assert [int(r.request_id) for r in self.buffer] == sorted(self.here), "each leaves exactly once"
        for number in self.here:
            assert (self.buffer.running(str(number)) is not None) == (number in self.running)

    def teardown(self) -> None:
        """Whatever happened, all that is left can be served."""
        while (taken := self.buffer.take()) is not None:
            self.buffer.finish(taken.request_id)
        assert self.buffer.num_waiting == 0


class LongTurnMachine(FairShareMachine):
    turn_chunks = 3


TestFairShare = FairShareMachine.TestCase
TestFairShareInTurns = LongTurnMachine.TestCase


@given(turn_chunks=turns, rounds=st.lists(st.sampled_from(["take", "requeue", *WEIGHTS]), max_size=120))
def test_tenants_that_wait_all_the_while_share_by_weight(turn_chunks: int, rounds: list[str]) -> None:
    """ada and bob always have work; cy comes and goes. Over any stretch, neither is ahead by more than a turn of each."""
    buffer = weighted(turn_chunks)
    for number in range(130):
        buffer.add(request(f"ada{number}", "ada"))
        buffer.add(request(f"bob{number}", "bob"))
    ahead = [0.0]
    for number, action in enumerate(rounds):
        if action in WEIGHTS:
            buffer.add(request(f"new{number}", action))
        elif action == "requeue":
            buffer.requeue_running()
        elif (taken := buffer.take()) is not None:
            tenant = taken.policy.tenant
            ahead.append(ahead[-1] + {"ada": 1 / WEIGHTS["ada"], "bob": -1 / WEIGHTS["bob"], "cy": 0.0}[tenant])
    assert max(ahead) - min(ahead) <= turn_chunks * (1 / WEIGHTS["ada"] + 1 / WEIGHTS["bob"])


@given(
    weight=st.floats(0.01, 100),
    burst=st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=3, unique=True),
    turn_chunks=turns,
    head_start=st.integers(0, 100),
)
def test_nobody_starves(weight: float, burst: list[str], turn_chunks: int, head_start: int) -> None:
    """A newcomer of any weight waits for at most one turn of each of the others, however much they have waiting."""
    buffer = FairShareBuffer(turn_chunks)
    buffer.set_weight("new", weight)
    for tenant in burst:
        for number in range(200):
            buffer.add(request(f"{tenant}{number}", tenant))
    for _ in range(head_start):
        buffer.take()
    buffer.add(request("new", "new"))
    taken = [buffer.take() for _ in range((len(burst) + 1) * turn_chunks + 1)]
    assert "new" in [r.request_id for r in taken if r is not None]


@pytest.mark.parametrize("turn_chunks", [1, 4])
def test_shares_in_the_long_run(turn_chunks: int) -> None:
    buffer = weighted(turn_chunks)
    for tenant in WEIGHTS:
        for number in range(2000):
            buffer.add(request(f"{tenant}{number}", tenant))
    counts = Counter(taken.policy.tenant for _ in range(1400) if (taken := buffer.take()) is not None)
    assert counts == {tenant: pytest.approx(400 * weight, abs=2 * turn_chunks) for tenant, weight in WEIGHTS.items()}


def test_an_idle_tenant_saves_nothing_up() -> None:
    buffer = FairShareBuffer()
    buffer.add(request("first", "idle"))
    buffer.take()
    for number in range(100):
        buffer.add(request(f"busy{number}", "busy"))
    for _ in range(50):
        buffer.take()
    for number in range(100):
        buffer.add(request(f"idle{number}", "idle"))
    counts = Counter(taken.policy.tenant for _ in range(20) if (taken := buffer.take()) is not None)
    assert counts == {"busy": 10, "idle": 10}


def test_many_requests_or_queues_buy_no_share() -> None:
    buffer = FairShareBuffer()
    for number in range(500):
        buffer.add(request(f"many{number}", "many", queue=f"task{number}"))
    for number in range(20):
        buffer.add(request(f"few{number}", "few"))
    counts = Counter(taken.policy.tenant for _ in range(30) if (taken := buffer.take()) is not None)
    assert counts == {"many": 15, "few": 15}


def test_cancelling_does_not_prolong_a_turn() -> None:
    buffer = FairShareBuffer(turn_chunks=2)
    for request_id, queue in (("1", "x"), ("2", "x"), ("3", "y"), ("4", "y")):
        buffer.add(request(request_id, "sly", queue))
    buffer.add(request("5", "other"))
    taken = [buffer.take()]
    buffer.remove("2")
    taken += [buffer.take(), buffer.take()]
    assert [r.request_id for r in taken if r is not None] == ["1", "3", "5"]


def test_a_tenant_that_cancelled_its_turn_is_served_again() -> None:
    buffer = FairShareBuffer(turn_chunks=2)
    for request_id, tenant in (("1", "ada"), ("2", "ada"), ("3", "bob")):
        buffer.add(request(request_id, tenant))
    taken = [buffer.take()]
    buffer.remove("2")
    taken.append(buffer.take())
    buffer.add(request("4", "ada"))
    taken.append(buffer.take())
    assert [r.request_id for r in taken if r is not None] == ["1", "3", "4"]


@on_loop
async def test_it_serves_in_the_place_of_a_request_buffer() -> None:
    service, engine = RolloutService(4, lambda _: 3, BufferScheduler(FairShareBuffer(turn_chunks=2))), FakeEngine()
    service.attach(ENGINE, engine, CACHE_TOKENS)
    requests = [served(number, queue=f"task{number % 3}") for number in range(12)]
    jobs = start(service, requests)
    await settle()
    jobs[5].cancel()
    service.detach(ENGINE)
    service.attach(ENGINE, engine := FakeEngine(), CACHE_TOKENS)
    await serve(service, engine, Random(0))
    assert [job.result() for number, job in enumerate(jobs) if number != 5] == [
        expected(r) for r in requests if r is not requests[5]
    ]
    assert engine.most_chunks <= 3
    assert (service.scheduler.num_running, service.scheduler.num_waiting) == (0, 0)


def test_cost_may_be_tokens() -> None:
    buffer = FairShareBuffer(cost_of=lambda request: len(request.context_tokens))
    for number in range(100):
        buffer.add(request(f"long{number}", "long", num_tokens=40))
        buffer.add(request(f"short{number}", "short", num_tokens=10))
    counts = Counter(taken.policy.tenant for _ in range(50) if (taken := buffer.take()) is not None)
    assert counts == {"long": 10, "short": 40}


def test_a_weight_holds_from_when_it_is_set() -> None:
    buffer = FairShareBuffer()
    for number in range(100):
        buffer.add(request(f"a{number}", "a"))
        buffer.add(request(f"b{number}", "b"))
    for _ in range(20):
        buffer.take()
    buffer.set_weight("a", 3.0)
    counts = Counter(taken.policy.tenant for _ in range(40) if (taken := buffer.take()) is not None)
    assert counts == {"a": pytest.approx(30, abs=1), "b": pytest.approx(10, abs=1)}


@pytest.mark.parametrize("weight", [0.0, -1.0, math.inf, math.nan])
def test_a_weight_is_finite_and_above_0(weight: float) -> None:
    with pytest.raises(WeightError, match=f"weight of tenant 'ada' is {weight}"):
        FairShareBuffer().set_weight("ada", weight)


def test_a_request_id_is_not_in_the_buffer_twice() -> None:
    buffer = FairShareBuffer()
    buffer.add(request("1"))
    with pytest.raises(ValueError, match="'1' is in the buffer already"):
        buffer.add(request("1", "bob"))
    buffer.remove("1")
    buffer.add(request("1", "bob"))
    assert buffer.num_waiting == 1


def test_5000_waiting_requests_of_100_tenants_are_cheap() -> None:
    """Half are cancelled from behind, and the others run twenty chunks each."""
    buffer = FairShareBuffer(turn_chunks=4)
    for number in range(5000):
        buffer.add(request(str(number), f"tenant{number % 100}", queue=f"task{number % 200}"))
    start_s = time.process_time()
    for number in range(4999, 2499, -1):
        buffer.remove(str(number))
    for _ in range(50_000):
        taken = buffer.take()
        assert taken is not None
        buffer.requeue(taken.request_id)
    assert time.process_time() - start_s < 5
