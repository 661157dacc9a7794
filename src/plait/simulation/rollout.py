"""Rollout in simulated time: the service's own dispatcher and scheduler over simulated engines."""

from collections import Counter
from collections.abc import Callable, Mapping

import simpy

from plait.rollout.concurrency import ConcurrencyController
from plait.rollout.dispatcher import Dispatcher
from plait.rollout.request import GenerationRequest
from plait.rollout.scheduler import Scheduler
from plait.simulation.caches import Caches
from plait.simulation.costs import CostModel
from plait.simulation.engine import Busy, SimulatedEngine
from plait.simulation.engine_kinds import EngineKind, make_engine
from plait.simulation.light_request import LightRequest, shared_prompt
from plait.types.chunks import Chunk

OnDone = Callable[[GenerationRequest], None]


class SimulatedRollout:
    """`lengths`: request id -> tokens that it draws in all; engines have `cache_tokens` and `max_rows` each.

    With `adapts_rows` the service's controllers choose how many rows an engine has, up to `max_rows`. With `is_staged` nobody gets
    an answer before all generations under way have ended. `pool_tokens` as in `Caches`.
    """

    def __init__(
        self, env: simpy.Environment, scheduler: Scheduler, engines: Mapping[str, CostModel], cache_tokens: int, max_rows: int,
        chunk_tokens: int, on_busy: Busy | None = None, *, kind: EngineKind = EngineKind(), adapts_rows: bool = False,
        is_staged: bool = False, pool_tokens: int | None = None,
    ) -> None:  # fmt: skip
        self.env, self.scheduler = env, scheduler
        scheduler.chunk_tokens = chunk_tokens
        self._on_busy, self._is_staged = on_busy, is_staged
        self.concurrency = {name: ConcurrencyController(max_rows, max_rows // 2) for name in engines} if adapts_rows else {}
        self._num_told: Counter[str] = Counter()
        """Tokens that controllers were told of."""
        self.dispatcher = Dispatcher(scheduler, self._rows_of if adapts_rows else dict.fromkeys(engines, max_rows).__getitem__)
        self.caches = Caches({name: costs.fetch_s for name, costs in engines.items()}, pool_tokens)
        self.lengths: dict[str, int] = {}
        self._requests: dict[str, tuple[GenerationRequest, OnDone]] = {}
        self._held: list[tuple[GenerationRequest, OnDone]] = []
        """Answers that wait for the end of their stage."""
        self._members: Counter[str] = Counter()
        """Requests here, by group,"""
        self._sharers: Counter[str] = Counter()
        """and by prompt, where several may have it."""
        self.num_finished: Counter[str] = Counter()
        """Of each group that is here."""
        self._will_pump = False
        self.engines: dict[str, SimulatedEngine] = {}
        size = {"cache_tokens": cache_tokens, "max_rows": max_rows}
        for name, costs in engines.items():
            basics = (env, name, costs, self._left_of, self.caches.needs, self._on_ended, self._engine_busy)
            self.engines[name] = make_engine(kind, basics, size, self.num_finished.__getitem__)
            self.dispatcher.attach(name, cache_tokens)

    # ---- requests

    def submit(self, request: GenerationRequest, length: int, on_done: OnDone, follows: str = "") -> None:
        """`follows`: a finished request that this one's context begins with, stored with `keep`."""
        self.lengths[request.request_id], self._requests[request.request_id] = length, (request, on_done)
        if follows:
            self.caches.follow(request.request_id, follows)
        self._members[request.group] += 1
        self._sharers[shared_prompt(request)] += 1
        self.scheduler.add(request)
        self._pump_soon()

    def keep(self, request: GenerationRequest) -> None:
        """Of a finished request whose conversation goes on."""
        self.caches.store(request.engine, request.request_id, len(request.context_tokens) + len(request.tokens))

    def cancel(self, request_id: str) -> None:
        """Fine if it has ended; its answer is never given."""
        if request_id not in self._requests:
            return
        request = self._forget(request_id)[0]
        if self.dispatcher.remove(request):
            self.engines[request.engine].cancel([request.chunk_id])
            self._pump_soon()
        self._end_stage()

    def _forget(self, request_id: str) -> tuple[GenerationRequest, OnDone]:
        found = self._requests.pop(request_id)
        del self.lengths[request_id]
        self.caches.forget(request_id)
        group, prompt = found[0].group, shared_prompt(found[0])
        self._members[group] -= 1
        if not self._members[group]:
            del self._members[group], self.num_finished[group]
        self._sharers[prompt] -= 1
        if not self._sharers[prompt]:
            del self._sharers[prompt]
            self.caches.forget_prompt(prompt)
        return found

    def _left_of(self, chunk: Chunk) -> int:
        return max(1, self.lengths[chunk.generation] - chunk.generated_tokens)

    # ---- results

    def _on_ended(self, engine: str, chunk: Chunk, drawn: int, is_last: bool) -> None:
        request = self.dispatcher.ended(chunk.request_id)
        if request is None:
            return
        assert isinstance(request, LightRequest)
        request.drew(drawn)
        if is_last:
            self.scheduler.finish(request.request_id)
            if request.group:
                self.num_finished[request.group] += 1
            self._held.append(self._forget(request.request_id))
            self._end_stage()
        else:
            self.caches.store(engine, request.request_id, len(request.context_tokens) + len(request.tokens))
            self.scheduler.requeue(request.request_id)
        self._pump_soon()

    def _end_stage(self) -> None:
        if self._is_staged and self._requests:
            return
        held, self._held = self._held, []
        for request, on_done in held:
            on_done(request)

    # ---- chunks

    def _rows_of(self, engine: str) -> int:
        return self.concurrency[engine].limit

    def _engine_busy(self, name: str, start_s: float, end_s: float, num_rows: int) -> None:
        if self._on_busy is not None:
            self._on_busy(name, start_s, end_s, num_rows)
        if self.concurrency:
            self._adapt(name, end_s - start_s, num_rows)

    def _adapt(self, name: str, busy_s: float, num_rows: int) -> None:
        engine = self.engines[name]
        num_tokens = engine.num_computed_tokens + engine.num_decoded_tokens
        self.concurrency[name].observe(num_tokens - self._num_told[name], busy_s, num_rows)
        self._num_told[name] = num_tokens
        self._pump_soon()

    def _pump_soon(self) -> None:
        """Once for all that happens at this moment."""
        if not self._will_pump:
            self._will_pump = True
            self.env.timeout(0).callbacks.append(lambda _: self._pump())

    def _pump(self) -> None:
        self._will_pump = False
        handed = self.dispatcher.place()
        for placement in handed.problems:
            raise ValueError(f"request {placement.request.request_id}: {placement.problem}")
        for name, chunks in handed.chunks.items():
            self.engines[name].submit(chunks)
        for name in handed.end_stretches:
            self.engines[name].end_stretches()
