"""Parts of the service that report how long things take, and otherwise are what they extend."""

import time
from collections.abc import Iterator, Sequence

from plait.rollout.engine_state import EngineState
from plait.rollout.request import GenerationRequest
from plait.rollout.routing import Router
from plait.rollout.scheduler import Placement, Scheduler
from plait.server.call import Call, CallResult
from plait.server.call_handler import CallHandler, ModelShape
from plait.server.certificates import Certifier
from plait.server.logs import begin
from plait.server.metrics import Metrics
from plait.server.model_runner import ModelRunner
from plait.server.sample_call import SampleCall, Sampled
from plait.server.sampling import Sampling
from plait.server.saving import Saving
from plait.server.tracing import Tracing
from plait.server.trainer_calls import TrainerCalls


class ObservedHandler(CallHandler):
    """A call's turn begins and ends here."""

    def __init__(
        self,
        trainer: TrainerCalls,
        saving: Saving,
        certifier: Certifier,
        shape: ModelShape,
        metrics: Metrics,
        tracing: Tracing,
    ) -> None:
        super().__init__(trainer, saving, certifier, shape)
        self._metrics, self._tracing = metrics, tracing

    async def run(self, runner: ModelRunner, call: Call) -> CallResult:
        tenant = runner.opening.tenant
        begin(call=call.request_id, model_id=call.model_id, tenant=tenant)
        start_s = time.monotonic()
        attributes: dict[str, str | int | float] = {
            "model_id": call.model_id,
            "seq_id": call.seq_id,
            "tenant": tenant,
            "wait_s": start_s - call.accepted_s,
        }
        try:
            with self._tracing.call(call.request_id, call.kind, attributes):
                return await super().run(runner, call)
        finally:
            self._metrics.call_ran(call, start_s, time.monotonic())


class ObservedSampling(Sampling):
    """Every sample runs here."""

    tracing = Tracing()
    """Set by whoever traces."""

    async def _generate(self, call: SampleCall, generations: list[GenerationRequest]) -> Sampled:
        sampler = call.sampler
        attributes: dict[str, str | int | float] = {
            "request_id": call.request_id,
            "tenant": sampler.tenant_id,
            "policy": str(sampler.policy),
            "num_samples": len(generations),
            "num_prompt_tokens": len(call.prompt_tokens),
        }
        with self.tracing.sample(attributes) as span:
            sampled = await super()._generate(call, generations)
            num_tokens = sum(len(segment.tokens) for segment in sampled.segments)
            self.tracing.end_sample(span, {"num_sampled_tokens": num_tokens, "num_cached_tokens": sampled.num_cached_tokens})
            return sampled


class ObservedScheduler(Scheduler):
    """Every generation enters, has its first chunk and leaves here; `inner` decides."""

    def __init__(self, metrics: Metrics, inner: Scheduler) -> None:
        self._metrics, self._inner = metrics, inner
        self._added_s: dict[str, float] = {}
        self._without_tokens: set[str] = set()

    @property
    def chunk_tokens(self) -> int:
        return self._inner.chunk_tokens

    @chunk_tokens.setter
    def chunk_tokens(self, chunk_tokens: int) -> None:
        self._inner.chunk_tokens = chunk_tokens

    @property
    def num_running(self) -> int:
        return self._inner.num_running

    @property
    def num_waiting(self) -> int:
        return self._inner.num_waiting

    @property
    def router(self) -> Router | None:
        return getattr(self._inner, "router", None)

    def __iter__(self) -> Iterator[GenerationRequest]:
        return iter(self._inner)

    def place(self, engines: Sequence[EngineState]) -> Placement | None:
        return self._inner.place(engines)

    def running(self, request_id: str) -> GenerationRequest | None:
        return self._inner.running(request_id)

    def requeue_running(self, engine: str | None = None) -> None:
        """The wait for a first token goes on."""
        self._inner.requeue_running(engine)

    def add(self, request: GenerationRequest) -> None:
        self._inner.add(request)
        self._added_s[request.request_id] = time.monotonic()
        self._without_tokens.add(request.request_id)

    def requeue(self, request_id: str) -> None:
        if (request := self._inner.running(request_id)) is not None:
            self._observe_first(request)
        self._inner.requeue(request_id)

    def finish(self, request_id: str) -> GenerationRequest:
        request = self._inner.finish(request_id)
        self._observe_first(request)
        self._metrics.sample_ended(time.monotonic() - self._added_s[request_id])
        self._drop(request_id)
        return request

    def remove(self, request_id: str) -> bool:
        self._drop(request_id)
        return self._inner.remove(request_id)

    def _observe_first(self, request: GenerationRequest) -> None:
        if request.tokens and request.request_id in self._without_tokens:
            self._without_tokens.remove(request.request_id)
            self._metrics.first_chunk(time.monotonic() - self._added_s[request.request_id])

    def _drop(self, request_id: str) -> None:
        self._added_s.pop(request_id, None)
        self._without_tokens.discard(request_id)
