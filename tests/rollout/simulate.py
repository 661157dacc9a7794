"""A rollout as pure events: engines that decode in lockstep, a scheduler that fills them, and forced lengths. No torch, no clock.

A decode step of an engine takes `Cost.step_s(rows, context tokens)`; chunks join at the next step's begin. A request's first
tokens are computed, and those of a chunk that ran elsewhere before are moved, both at a cost in seconds for each token.
"""

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from plait.rollout.engine_state import EngineState
from plait.rollout.request import GenerationRequest
from plait.rollout.scheduler import Placement, Scheduler


@dataclass(frozen=True)
class Cost:
    """Seconds. The defaults are those of a memory-bound accelerator: rows are cheap, contexts are read at each step."""

    base_s: float = 0.02
    per_row_s: float = 0.0002
    per_context_token_s: float = 2e-7
    per_prefill_token_s: float = 2e-5
    per_moved_token_s: float = 1e-6

    def step_s(self, num_rows: int, context_tokens: float) -> float:
        return self.base_s + self.per_row_s * num_rows + self.per_context_token_s * context_tokens


@dataclass
class SimulatedRow:
    placement: Placement
    left_tokens: int
    """Until its chunk ends."""


@dataclass
class SimulatedEngine:
    name: str
    cache_tokens: int
    max_rows: int
    cost: Cost
    rows: list[SimulatedRow] = field(default_factory=list)
    time_s: float = 0.0
    """When its latest decode step ended."""
    busy_s: float = 0.0
    is_up: bool = True

    @property
    def state(self) -> EngineState:
        reserved = sum(row.placement.footprint_tokens for row in self.rows)
        num_rows = len(self.rows) if self.is_up else self.max_rows
        return EngineState(self.name, self.cache_tokens, reserved, self.max_rows, num_rows)

    def _step_s(self, num_steps: int) -> float:
        """Of each of the next `num_steps`, on average."""
        context = sum(
            len(row.placement.request.context_tokens) + len(row.placement.request.tokens) + num_steps / 2 for row in self.rows
        )
        return self.cost.step_s(len(self.rows), context)

    @property
    def next_end_s(self) -> float:
        """When its next chunk ends, if none joins."""
        num_steps = min(row.left_tokens for row in self.rows)
        return self.time_s + num_steps * self._step_s(num_steps)

    def advance(self, to_s: float) -> list[SimulatedRow]:
        """Decode up to the first step's end at or after `to_s`, none past a chunk's end; returns the rows whose chunks ended."""
        while self.rows and self.time_s < to_s - 1e-9:
            most = min(row.left_tokens for row in self.rows)
            step_s = self._step_s(most)
            num_steps = min(most, max(1, -int(-(to_s - self.time_s - 1e-9) // step_s)))
            self._decode(num_steps, step_s)
            if any(row.left_tokens == 0 for row in self.rows):
                break
        ended = [row for row in self.rows if row.left_tokens == 0]
        self.rows = [row for row in self.rows if row.left_tokens]
        return ended

    def _decode(self, num_steps: int, step_s: float) -> None:
        for row in self.rows:
            row.left_tokens -= num_steps
            row.placement.request.tokens.extend([0] * num_steps)
        self.time_s += num_steps * step_s
        self.busy_s += num_steps * step_s

    def admit(self, placement: Placement, length: int, now_s: float, uncached_tokens: int, moved_tokens: int) -> None:
        if not self.rows:
            self.time_s = max(self.time_s, now_s)
        fill_s = uncached_tokens * self.cost.per_prefill_token_s + moved_tokens * self.cost.per_moved_token_s
        self.time_s += fill_s
        self.busy_s += fill_s
        left = min(placement.budget_tokens, length - len(placement.request.tokens))
        self.rows.append(SimulatedRow(placement, left))


@dataclass
class Simulated:
    """What came of it; times in seconds from the start."""

    finish_s: dict[str, float] = field(default_factory=dict)
    busy_s: dict[str, float] = field(default_factory=dict)
    num_tokens: int = 0
    last_engine: dict[str, str] = field(default_factory=dict)
    """Where each request's latest chunk ran."""
    problems: dict[str, str] = field(default_factory=dict)
    reserved_integral: float = 0.0
    """Reserved share of all cache times seconds, while requests wait."""
    waiting_s: float = 0.0
    """Seconds in which requests wait."""

    @property
    def makespan_s(self) -> float:
        return max(self.finish_s.values(), default=0.0)

    @property
    def last_tenth_s(self) -> float:
        """Time that the last 10 % of the requests add at the end."""
        ends = sorted(self.finish_s.values())
        return ends[-1] - ends[max(0, int(0.9 * len(ends)) - 1)]

    @property
    def idle_share(self) -> float:
        """Of all engines' time."""
        return 1 - sum(self.busy_s.values()) / (len(self.busy_s) * self.makespan_s)

    @property
    def reserved_share(self) -> float:
        """Of the cache, on average while requests wait."""
        return self.reserved_integral / self.waiting_s if self.waiting_s else 1.0


def simulate(
    scheduler: Scheduler,
    requests: Sequence[GenerationRequest],
    lengths: Mapping[str, int],
    engines: Sequence[SimulatedEngine],
    arrivals_s: Mapping[str, float] | None = None,
) -> Simulated:
    """Serve all requests to their forced lengths. AssertionError if something waits and nothing runs or comes."""
    arrivals = sorted(((arrivals_s or {}).get(r.request_id, 0.0), number) for number, r in enumerate(requests))
    heapq.heapify(arrivals)
    result, now_s = Simulated(), 0.0
    while arrivals or scheduler.num_running or scheduler.num_waiting:
        while arrivals and arrivals[0][0] <= now_s:
            scheduler.add(requests[heapq.heappop(arrivals)[1]])
        fill(scheduler, lengths, engines, now_s, result)
        next_s = min([e.next_end_s for e in engines if e.rows] + [time_s for time_s, _ in arrivals[:1]], default=None)
        if next_s is None:
            assert not scheduler.num_waiting, "deadlock"
            break
        note_reserved(scheduler, engines, next_s - now_s, result)
        now_s = max(now_s, next_s)
        for engine in engines:
            for row in engine.advance(now_s):
                end_chunk(scheduler, row, lengths, engine.time_s, result)
    result.busy_s = {engine.name: engine.busy_s for engine in engines}
    return result


def fill(
    scheduler: Scheduler, lengths: Mapping[str, int], engines: Sequence[SimulatedEngine], now_s: float, result: Simulated
) -> None:
    """Place chunks until nothing more may start."""
    while (placement := scheduler.place([engine.state for engine in engines])) is not None:
        request = placement.request
        if placement.problem:
            result.problems[request.request_id] = placement.problem
            scheduler.finish(request.request_id)
            continue
        engine = next(each for each in engines if each.name == placement.engine)
        known = len(request.context_tokens) + len(request.tokens)
        last = result.last_engine.get(request.request_id)
        result.last_engine[request.request_id] = engine.name
        moved = known if last not in (None, engine.name) else 0
        engine.admit(placement, lengths[request.request_id], now_s, known if last is None else 0, moved)


def note_reserved(scheduler: Scheduler, engines: Sequence[SimulatedEngine], span_s: float, result: Simulated) -> None:
    if scheduler.num_waiting and span_s > 0:
        states = [engine.state for engine in engines]
        result.waiting_s += span_s
        result.reserved_integral += span_s * sum(s.reserved_tokens for s in states) / sum(s.cache_tokens for s in states)


def end_chunk(scheduler: Scheduler, row: SimulatedRow, lengths: Mapping[str, int], now_s: float, result: Simulated) -> None:
    request = row.placement.request
    if len(request.tokens) < lengths[request.request_id]:
        scheduler.requeue(request.request_id)
        return
    scheduler.finish(request.request_id)
    result.finish_s[request.request_id] = now_s
    result.num_tokens += len(request.tokens)
