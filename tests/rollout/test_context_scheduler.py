"""Promises of the scheduler under any events, told from what it placed alone."""

import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from plait.rollout.context_scheduler import ContextScheduler, SchedulerLimits
from plait.rollout.engine_state import EngineState
from plait.rollout.request import GenerationRequest
from plait.rollout.scheduler import Placement
from tests.rollout.scheduled import engine, request
from tests.rollout.simulate import Cost, SimulatedEngine, simulate

CHUNK_TOKENS = 8
LIMITS = SchedulerLimits(turn_chunks=2, max_bypasses=2, patience=8, aging_turn=3)
MAX_ROWS = 4


@dataclass
class Engine:
    cache_tokens: int
    is_up: bool = True
    chunks: dict[str, Placement] = field(default_factory=dict)

    def state(self, name: str) -> EngineState:
        reserved = sum(each.footprint_tokens for each in self.chunks.values())
        return EngineState(name, self.cache_tokens, reserved, MAX_ROWS, len(self.chunks) if self.is_up else MAX_ROWS)


class SchedulerMachine(RuleBasedStateMachine):
    """Adds, places, ends chunks, removes, and loses engines and gets them back, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.scheduler = ContextScheduler(CHUNK_TOKENS, LIMITS)
        self.engines = {"e0": Engine(40), "e1": Engine(60), "e2": Engine(60)}
        self.here: dict[str, GenerationRequest] = {}
        self.number = 0

    def _states(self) -> list[EngineState]:
        return [each.state(name) for name, each in self.engines.items()]

    @rule(
        group=st.sampled_from(["", "a", "b"]), tenant=st.sampled_from(["ada", "bob"]), queue=st.sampled_from("xy"),
        prompt_tokens=st.integers(1, 56), count=st.integers(1, 4),
    )  # fmt: skip
    def add(self, group: str, tenant: str, queue: str, prompt_tokens: int, count: int) -> None:
        for _ in range(count):
            each = request(f"r{self.number}", group, tenant, queue, prompt_tokens, max_new_tokens=30)
            self.number += 1
            self.here[each.request_id] = each
            self.scheduler.add(each)

    @rule()
    def place_all(self) -> None:
        states = {each.name: each for each in self._states()}
        while (placement := self.scheduler.place(self._states())) is not None:
            request_id = placement.request.request_id
            if placement.problem:
                assert placement.footprint_tokens > 60
                self._leave(self.scheduler.finish(request_id))
                continue
            states = {each.name: each for each in self._states()}
            assert states[placement.engine].has_room(placement.footprint_tokens)
            assert (
                placement.footprint_tokens
                == len(placement.request.next_chunk(CHUNK_TOKENS).context_tokens) + placement.budget_tokens
            )
            self.engines[placement.engine].chunks[request_id] = placement
        self._check_nothing_more_fits()

    def _check_nothing_more_fits(self) -> None:
        """But for one engine that drains: nothing that waits would have fitted."""
        waiting = [each for each in self.here.values() if self.scheduler.running(each.request_id) is None]
        sizes = [len(e.context_tokens) + len(e.tokens) + e.chunk_budget(CHUNK_TOKENS) for e in waiting]
        idle = [each.name for each in self._states() if any(each.has_room(size) for size in sizes)]
        assert len(idle) <= 1
        if idle:
            assert self.engines[idle[0]].chunks, "an empty engine takes whatever it drains for"

    def _leave(self, gone: GenerationRequest) -> None:
        del self.here[gone.request_id]

    @precondition(lambda self: any(each.chunks for each in self.engines.values()))
    @rule(data=st.data(), share=st.floats(0, 1))
    def end_chunk(self, data: st.DataObject, share: float) -> None:
        running = [(name, request_id) for name, each in self.engines.items() for request_id in each.chunks]
        self._end(*data.draw(st.sampled_from(running)), share=share)

    def _end(self, name: str, request_id: str, share: float) -> None:
        placement = self.engines[name].chunks.pop(request_id)
        tokens = placement.request.tokens
        drawn = max(1, round(share * placement.budget_tokens))
        tokens += [0] * drawn
        if drawn < placement.budget_tokens or len(tokens) == 30:
            self._leave(self.scheduler.finish(request_id))
        else:
            self.scheduler.requeue(request_id)

    @precondition(lambda self: self.here)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        request_id = data.draw(st.sampled_from(sorted(self.here)))
        ran = [each.chunks.pop(request_id, None) for each in self.engines.values()]
        assert self.scheduler.remove(request_id) == any(ran)
        del self.here[request_id]

    @rule(name=st.sampled_from(["e0", "e1", "e2"]), comes_back=st.booleans())
    def lose_engine(self, name: str, comes_back: bool) -> None:
        self.scheduler.requeue_running(name)
        self.engines[name].chunks.clear()
        self.engines[name].is_up = comes_back

    @invariant()
    def counts_agree(self) -> None:
        num_running = sum(len(each.chunks) for each in self.engines.values())
        assert (self.scheduler.num_running, self.scheduler.num_waiting) == (num_running, len(self.here) - num_running)
        assert [each.request_id for each in self.scheduler] == list(self.here), "each leaves exactly once"

    def teardown(self) -> None:
        """Whatever happened, all that is left is served, by what engines there are."""
        for each in self.engines.values():
            each.is_up = True
        self.place_all()
        for _ in range(5 * self.number + 1):
            for name, each in self.engines.items():
                for request_id in list(each.chunks):
                    self._end(name, request_id, 1.0)
            self.place_all()
        assert self.scheduler.num_waiting == self.scheduler.num_running == 0
        assert not self.scheduler._queues, "nothing is remembered of what has gone"
        assert not self.scheduler.router._prompts
        assert not self.scheduler.router._last


SchedulerMachine.TestCase.settings = settings(deadline=None, max_examples=50, stateful_step_count=30)
TestContextScheduler = SchedulerMachine.TestCase


def test_a_big_request_is_passed_over_a_bounded_number_of_times() -> None:
    """Small ones keep coming and one engine is never empty by itself; then it drains."""
    scheduler = ContextScheduler(CHUNK_TOKENS, SchedulerLimits(max_bypasses=3, uses_context=False))
    running: list[Placement] = []
    scheduler.add(request("big", tenant="bob", prompt_tokens=80, max_new_tokens=8))
    for number in range(100):
        scheduler.add(request(f"small{number}", prompt_tokens=12, max_new_tokens=8))
    states = [engine(cache_tokens=100, reserved=20)]
    order = []
    for _ in range(30):
        while (placed := scheduler.place(states)) is not None:
            running.append(placed)
            order.append(placed.request.request_id)
            states = [engine(cache_tokens=100, reserved=sum(p.footprint_tokens for p in running))]
        if "big" in order:
            break
        scheduler.finish(running.pop(0).request.request_id)
        states = [engine(cache_tokens=100, reserved=sum(p.footprint_tokens for p in running))]
    assert order.index("big") == 3


@pytest.mark.parametrize("num_engines", [1, 3])
def test_many_long_requests_in_little_memory_end(num_engines: int) -> None:
    """Each needs most of an engine in the end; engines hold more than one at the start."""
    scheduler = ContextScheduler(16, SchedulerLimits(max_bypasses=2))
    requests = [request(str(n), group=str(n // 4), prompt_tokens=10, max_new_tokens=200) for n in range(32)]
    lengths = {each.request_id: 200 for each in requests}
    result = simulate(scheduler, requests, lengths, [SimulatedEngine(f"e{n}", 230, 64, Cost()) for n in range(num_engines)])
    assert len(result.finish_s) == 32
    assert not result.problems


def test_two_tenants_share_by_weight_whatever_their_tails() -> None:
    """ada has long generations, bob short ones and twice the weight; both wait all the while."""
    scheduler = ContextScheduler(CHUNK_TOKENS)
    scheduler.set_weight("bob", 2.0)
    for number in range(400):
        scheduler.add(request(f"ada{number}", f"a{number // 4}", "ada", max_new_tokens=4000))
        scheduler.add(request(f"bob{number}", f"b{number // 4}", "bob", max_new_tokens=4000))
    drawn: Counter[str] = Counter()
    running: list[Placement] = []
    for step in range(400):
        states = [engine(cache_tokens=100_000, max_rows=10, num_rows=len(running))]
        while (placed := scheduler.place(states)) is not None:
            running.append(placed)
            states = [engine(cache_tokens=100_000, max_rows=10, num_rows=len(running))]
        ended = running.pop(step % len(running))
        tenant = ended.request.policy.tenant
        num_tokens = CHUNK_TOKENS if tenant == "ada" else 3
        drawn[tenant] += num_tokens
        ended.request.tokens.extend([0] * num_tokens)
        (scheduler.requeue if tenant == "ada" else scheduler.finish)(ended.request.request_id)
    running_tokens = 10 * CHUNK_TOKENS
    assert abs(drawn["bob"] / 2 - drawn["ada"]) <= (2 * CHUNK_TOKENS + running_tokens) * 1.5


def test_a_newcomer_waits_for_one_chunk_of_each_other_tenant() -> None:
    scheduler = ContextScheduler(CHUNK_TOKENS)
    for number in range(300):
        scheduler.add(request(f"r{number}", tenant=f"tenant{number % 3}"))
    for _ in range(50):
        assert scheduler.place([engine(cache_tokens=10_000)]) is not None
    scheduler.add(request("new", tenant="new"))
    order = [scheduler.place([engine(cache_tokens=10_000)]) for _ in range(5)]
    assert "new" in [placed.request.request_id for placed in order if placed is not None]


def test_many_waiting_requests_are_cheap() -> None:
    """Four times as many take about four times the work, not sixteen."""
    assert num_lines_run(lambda: place_all(1000)) < 7 * num_lines_run(lambda: place_all(250))


def place_all(num_requests: int) -> None:
    """All wait, and a chunk is placed as often."""
    scheduler = ContextScheduler(CHUNK_TOKENS)
    for number in range(num_requests):
        scheduler.add(request(str(number), f"g{number // 8}", f"tenant{number % 8}", max_new_tokens=4000))
    states = [engine(f"e{n}", cache_tokens=100_000) for n in range(4)]
    for _ in range(num_requests):
        placed = scheduler.place(states)
        assert placed is not None
        placed.request.tokens.extend([0] * CHUNK_TOKENS)
        scheduler.requeue(placed.request.request_id)


def num_lines_run(call: Callable[[], None]) -> int:
    """Of Python, each turn of a loop anew: what a call costs, however slow or busy the machine."""
    count, before = 0, sys.gettrace()

    def trace(frame: Any, event: str, argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return count
