"""Spans of requests and of the calls that they bring; off unless asked for."""

import asyncio
import logging
from collections.abc import Iterator

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from plait.server.http_observer import HttpObserver
from plait.server.metrics import Metrics
from plait.server.tracing import ENDPOINT, MAX_REMEMBERED, Tracing, make_tracing


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def tracing(exporter: InMemorySpanExporter) -> Iterator[Tracing]:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    made = Tracing(provider)
    yield made
    made.close()


@pytest.fixture
def client(tracing: Tracing) -> TestClient:
    app = FastAPI()

    @app.post("/models/{model_id}")
    async def step(model_id: str) -> None:
        if model_id == "broken":
            raise RuntimeError
        tracing.remember(f"{model_id}:1")

    app.add_middleware(HttpObserver, metrics=Metrics(), tracing=tracing)
    return TestClient(app)


def only(exporter: InMemorySpanExporter) -> ReadableSpan:
    (span,) = exporter.get_finished_spans()
    return span


def test_a_request_is_a_span_under_its_caller(client: TestClient, exporter: InMemorySpanExporter) -> None:
    trace_id = "0af7651916cd43dd8448eb211c80319c"
    client.post("/models/m", headers={"traceparent": f"00-{trace_id}-b7ad6b7169203331-01"})
    span = only(exporter)
    assert span.name == "POST /models/{model_id}"
    assert span.attributes is not None
    assert span.attributes["http.response.status_code"] == 200
    assert span.attributes["plait.model_id"] == "m"
    context = span.get_span_context()
    assert context is not None
    assert f"{context.trace_id:032x}" == trace_id


def test_a_call_is_a_span_under_the_request_that_brought_it(
    client: TestClient, tracing: Tracing, exporter: InMemorySpanExporter
) -> None:
    client.post("/models/m")
    with tracing.call("m:1", "optim_step", {"model_id": "m", "seq_id": 1}):
        pass
    request, call = exporter.get_finished_spans()
    assert call.name == "call optim_step"
    assert call.parent is not None
    context = request.get_span_context()
    assert context is not None
    assert call.parent.span_id == context.span_id
    assert dict(call.attributes or {}) == {"plait.model_id": "m", "plait.seq_id": 1}


def test_a_call_of_a_former_server_has_a_trace_of_its_own(tracing: Tracing, exporter: InMemorySpanExporter) -> None:
    with tracing.request("POST", {}), tracing.call("unheard of", "load_weights", {}):
        pass
    assert exporter.get_finished_spans()[0].parent is None


def test_a_call_that_fails_is_told(tracing: Tracing, exporter: InMemorySpanExporter) -> None:
    with pytest.raises(ValueError, match="no good"), tracing.call("m:1", "optim_step", {}):
        raise ValueError("no good")
    assert only(exporter).status.status_code == StatusCode.ERROR


def test_a_broken_route_is_an_error(client: TestClient, exporter: InMemorySpanExporter) -> None:
    assert client.post("/models/broken").status_code == 500
    assert only(exporter).status.status_code == StatusCode.ERROR


def test_calls_that_never_run_are_forgotten(tracing: Tracing) -> None:
    for number in range(MAX_REMEMBERED + 5):
        tracing.remember(f"m:{number}")
    assert len(tracing._parents) == MAX_REMEMBERED


def test_it_is_off_without_an_endpoint() -> None:
    tracing = make_tracing({})
    assert not tracing.is_on
    tracing.remember("m:1")
    with tracing.request("GET", {}) as span, tracing.call("m:1", "optim_step", {}):
        assert span is None
    tracing.end_request(None, "/", 200, {})
    tracing.close()


def test_an_endpoint_turns_it_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENDPOINT, "http://127.0.0.1:9")
    tracing = make_tracing({ENDPOINT: "http://127.0.0.1:9", "OTEL_SERVICE_NAME": "mine"})
    assert tracing.is_on
    assert tracing._provider is not None
    assert tracing._provider.resource.attributes["service.name"] == "mine"
    tracing.close()


def test_what_is_missing_is_told(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setitem(__import__("sys").modules, "opentelemetry.sdk.trace", None)
    with caplog.at_level(logging.WARNING):
        assert not make_tracing({ENDPOINT: "http://127.0.0.1:9"}).is_on
    assert "plait[tracing]" in caplog.text


def test_a_sample_is_a_span_under_the_request_that_brought_it(tracing: Tracing, exporter: InMemorySpanExporter) -> None:
    async def work() -> None:
        with tracing.sample({"tenant": "ana"}) as span:
            await asyncio.sleep(0)
            tracing.end_sample(span, {"num_sampled_tokens": 4})

    async def serve() -> None:
        with tracing.request("POST", {}):
            task = asyncio.create_task(work())
        await task

    asyncio.run(serve())
    request, sample = exporter.get_finished_spans()
    assert sample.name == "sample"
    context = request.get_span_context()
    assert sample.parent is not None and context is not None
    assert sample.parent.span_id == context.span_id
    assert dict(sample.attributes or {}) == {"plait.tenant": "ana", "plait.num_sampled_tokens": 4}


def test_samples_are_not_traced_while_it_is_off() -> None:
    with Tracing().sample({}) as span:
        assert span is None
    Tracing().end_sample(span, {"num_sampled_tokens": 4})
