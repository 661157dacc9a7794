"""Rollout in simulated time: the service's own dispatcher and scheduler over simulated engines."""

from collections.abc import Callable, Mapping

import simpy

from plait.rollout.dispatcher import Dispatcher
from plait.rollout.request import GenerationRequest
from plait.rollout.scheduler import Scheduler
from plait.simulation.costs import CostModel
from plait.simulation.engine import SimulatedEngine
from plait.simulation.light_request import LightRequest
from plait.types.chunks import Chunk

OnDone = Callable[[GenerationRequest], None]


class SimulatedRollout:
    """`lengths`: request id -> tokens that it draws in all; engines have `cache_tokens` and `max_rows` each."""

    def __init__(
        self, env: simpy.Environment, scheduler: Scheduler, engines: Mapping[str, CostModel], cache_tokens: int, max_rows: int,
        chunk_tokens: int, on_busy: Callable[[str, float, float, int], None] | None = None,
    ) -> None:  # fmt: skip
        self.env, self.scheduler = env, scheduler
        scheduler.chunk_tokens = chunk_tokens
        self.dispatcher = Dispatcher(scheduler, lambda _: max_rows)
        self.lengths: dict[str, int] = {}
        self._done: dict[str, OnDone] = {}
        self._where: dict[str, set[str]] = {}
        """Engines that have computed the prompt of a group, or of a request that is alone."""
        self._will_pump = False
        self.engines = {
            name: SimulatedEngine(env, name, costs, self._left_of, self._prefill_of, self._on_ended, on_busy)
            for name, costs in engines.items()
        }
        for name in engines:
            self.dispatcher.attach(name, cache_tokens)

    def submit(self, request: GenerationRequest, length: int, on_done: OnDone) -> None:
        self.lengths[request.request_id], self._done[request.request_id] = length, on_done
        self.scheduler.add(request)
        self._pump_soon()

    def _left_of(self, chunk: Chunk) -> int:
        return max(1, self.lengths[chunk.generation] - chunk.generated_tokens)

    def _prefill_of(self, engine: str, chunk: Chunk) -> int:
        """The prompt, once for a group; what a chunk goes on from is in the global pool."""
        computed = self._where.setdefault(chunk.group or chunk.generation, set())
        if computed:
            return 0
        computed.add(engine)
        return len(chunk.context_tokens) - chunk.generated_tokens

    def _on_ended(self, engine: str, chunk: Chunk, drawn: int, is_last: bool) -> None:
        request = self.dispatcher.ended(chunk.request_id)
        if request is None:
            return
        assert isinstance(request, LightRequest)
        request.drew(drawn)
        if is_last:
            self.scheduler.finish(request.request_id)
            del self.lengths[request.request_id]
            self._done.pop(request.request_id)(request)
        else:
            self.scheduler.requeue(request.request_id)
        self._pump_soon()

    def _pump_soon(self) -> None:
        """Once for all that happens at this moment."""
        if not self._will_pump:
            self._will_pump = True
            event = self.env.timeout(0)
            event.callbacks.append(lambda _: self._pump())

    def _pump(self) -> None:
        self._will_pump = False
        handed = self.dispatcher.place()
        for placement in handed.problems:
            raise ValueError(f"request {placement.request.request_id}: {placement.problem}")
        for name, chunks in handed.chunks.items():
            self.engines[name].submit(chunks)
        for name in handed.end_stretches:
            self.engines[name].end_stretches()
