"""What the service's observing parts report of the work they extend."""

import asyncio
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from plait.operations.quotas import QuotaLimits, Quotas
from plait.rollout.service import RolloutError, RolloutService
from plait.server.certificates import Certifier
from plait.server.observed import ObservedSampling
from plait.server.sample_call import EngineLimits, SampleCall, Sampled
from plait.server.samplers import SamplerInfo
from plait.server.tracing import Tracing
from plait.server.wire.models.sampling import SampleRequest
from plait.types.policy import PolicyVersion
from tests.rollout.fake_engine import VOCAB_SIZE, FakeEngine

POLICY = PolicyVersion("ana", "s:train:0", 3)
PROMPT = [5, 6, 7]
MAX_TOKENS, NUM_SAMPLES = 4, 2

Scenario = Callable[["Sampler"], Coroutine[Any, Any, None]]


class Sampler:
    """ObservedSampling over an engine that draws when it is told to."""

    def __init__(self, tracing: Tracing | None) -> None:
        self.engine, self.rollout = FakeEngine(), RolloutService(64, lambda _: 100)
        self.rollout.attach("rollout", self.engine, 10_000)
        backend: Any = SimpleNamespace(rollout=self.rollout)
        self.charged: list[Sampled] = []
        futures: Any = None
        self.sampling = ObservedSampling(
            lambda _: backend, futures, Quotas(QuotaLimits()), Certifier(), 100, lambda _, sampled: self.charged.append(sampled)
        )
        if tracing is not None:
            self.sampling.tracing = tracing

    async def start(self) -> "asyncio.Task[Sampled]":
        """A sample whose chunks the engine holds."""
        task = self.sampling.start(call())
        for _ in range(100):
            await asyncio.sleep(0)
        assert len(self.engine.chunks) == NUM_SAMPLES, task
        return task

    def draw(self) -> None:
        self.rollout.on_results([self.engine.run(chunk_id) for chunk_id in sorted(self.engine.chunks)])


def call() -> SampleCall:
    request = SampleRequest.model_validate({
        "sampling_session_id": "s:sample:0", "seq_id": 1, "num_samples": NUM_SAMPLES, "prompt": {"chunks": [{"tokens": PROMPT}]},
        "sampling_params": {"max_tokens": MAX_TOKENS, "stop": []},
    })  # fmt: skip
    sampler = SamplerInfo("s:sample:0", "ana", "s", "base", POLICY)
    return SampleCall.check(request, sampler, EngineLimits(VOCAB_SIZE, 100, ()))


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def tracing(exporter: InMemorySpanExporter) -> Tracing:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return Tracing(provider)


def run(scenario: Scenario, tracing: Tracing | None) -> Sampler:
    async def work() -> Sampler:
        sampler = Sampler(tracing)
        await scenario(sampler)
        await asyncio.sleep(0)
        assert sampler.sampling.num_samples == 0
        return sampler

    return asyncio.run(work())


def only_span(exporter: InMemorySpanExporter) -> ReadableSpan:
    (span,) = exporter.get_finished_spans()
    return span


def test_a_sample_is_a_span_with_whose_it_is_and_what_it_took(tracing: Tracing, exporter: InMemorySpanExporter) -> None:
    async def scenario(sampler: Sampler) -> None:
        task = await sampler.start()
        sampler.draw()
        assert [len(segment.tokens) for segment in (await task).segments] == [MAX_TOKENS] * NUM_SAMPLES

    run(scenario, tracing)
    span = only_span(exporter)
    assert span.name == "sample"
    assert dict(span.attributes or {}) == {
        "plait.request_id": call().request_id, "plait.tenant": "ana", "plait.policy": "ana/s:train:0@3",
        "plait.num_samples": NUM_SAMPLES, "plait.num_prompt_tokens": len(PROMPT),
        "plait.num_sampled_tokens": NUM_SAMPLES * MAX_TOKENS, "plait.num_cached_tokens": 0,
    }  # fmt: skip


def test_a_sample_that_fails_is_an_error_in_its_span(tracing: Tracing, exporter: InMemorySpanExporter) -> None:
    async def scenario(sampler: Sampler) -> None:
        task = await sampler.start()
        sampler.rollout.fail_all(RolloutError("the workers are gone"))
        with pytest.raises(ExceptionGroup):
            await task

    run(scenario, tracing)
    span = only_span(exporter)
    assert span.status.status_code is StatusCode.ERROR
    assert "plait.num_sampled_tokens" not in (span.attributes or {})


def test_the_span_of_a_cancelled_sample_ends(tracing: Tracing, exporter: InMemorySpanExporter) -> None:
    async def scenario(sampler: Sampler) -> None:
        task = await sampler.start()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(scenario, tracing)
    assert only_span(exporter).end_time


@pytest.mark.parametrize("is_traced", [False, True])
def test_what_is_sampled_and_charged_is_the_same_traced_or_not(tracing: Tracing, is_traced: bool) -> None:
    async def scenario(sampler: Sampler) -> None:
        task = await sampler.start()
        sampler.draw()
        assert sampler.charged == [await task]

    assert len(run(scenario, tracing if is_traced else None).charged) == 1
