"""OpenTelemetry traces: a span for each HTTP request, and under it one for each call of a model and each sample that it brought.

Off, and free of cost, unless `plait[tracing]` is installed and OTEL_EXPORTER_OTLP_ENDPOINT is set; the SDK's other variables
(OTEL_SERVICE_NAME, OTEL_TRACES_SAMPLER, OTEL_EXPORTER_OTLP_HEADERS) hold as well.
"""

import contextlib
import logging
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any

from plait import __version__

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
CLOSE_S = 5.0
MAX_REMEMBERED = 10_000
"""Calls whose request is remembered until they run; of older ones the span has no parent."""

log = logging.getLogger("plait.server")
Attributes = Mapping[str, str | int | float]


class Tracing:
    """`provider` None: off."""

    def __init__(self, provider: Any | None = None) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("plait", __version__) if provider is not None else None
        self._parents: OrderedDict[str, Any] = OrderedDict()

    @property
    def is_on(self) -> bool:
        return self._tracer is not None

    @contextlib.contextmanager
    def request(self, method: str, headers: Mapping[str, str]) -> Iterator[Any]:
        """Around an HTTP request; a child of the caller's span, if it sends one. Gives the span, or None."""
        if self._tracer is None:
            yield None
            return
        from opentelemetry.propagate import extract
        from opentelemetry.trace import SpanKind

        with self._tracer.start_as_current_span(f"HTTP {method}", context=extract(headers), kind=SpanKind.SERVER) as span:
            yield span

    def end_request(self, span: Any | None, route: str, status: int, attributes: Attributes) -> None:
        if span is None:
            return
        from opentelemetry.trace import StatusCode

        span.update_name(f"{attributes['method']} {route}")
        span.set_attributes(_named(attributes))
        span.set_attributes({"http.route": route, "http.response.status_code": status})
        if status >= 500:
            span.set_status(StatusCode.ERROR)

    def remember(self, call_id: str) -> None:
        """The request that is being served brings this call."""
        if self._tracer is None:
            return
        from opentelemetry import context

        self._parents[call_id] = context.get_current()
        if len(self._parents) > MAX_REMEMBERED:
            self._parents.popitem(last=False)

    @contextlib.contextmanager
    def call(self, call_id: str, kind: str, attributes: Attributes) -> Iterator[None]:
        """Around the work of a call."""
        if self._tracer is None:
            yield
            return
        from opentelemetry.context import Context

        parent = self._parents.pop(call_id, None) or Context()
        with self._tracer.start_as_current_span(f"call {kind}", context=parent, attributes=_named(attributes)):
            yield

    @contextlib.contextmanager
    def sample(self, attributes: Attributes) -> Iterator[Any]:
        """Around the work of a sample, in a task that the request which brought it started. Gives the span, or None."""
        if self._tracer is None:
            yield None
            return
        with self._tracer.start_as_current_span("sample", attributes=_named(attributes)) as span:
            yield span

    def end_sample(self, span: Any | None, attributes: Attributes) -> None:
        if span is not None:
            span.set_attributes(_named(attributes))

    def close(self) -> None:
        """Send what has not been sent, if the collector takes it in time."""
        if self._provider is not None:
            sending = threading.Thread(target=self._provider.shutdown, daemon=True)
            sending.start()
            sending.join(CLOSE_S)


def _named(attributes: Attributes) -> dict[str, str | int | float]:
    return {f"plait.{name}": value for name, value in attributes.items()}


def make_tracing(environment: Mapping[str, str]) -> Tracing:
    if not environment.get(ENDPOINT):
        return Tracing()
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ModuleNotFoundError as error:
        log.warning("%s is set, but %s is missing, so nothing is traced: pip install 'plait[tracing]'", ENDPOINT, error.name)
        return Tracing()
    name = environment.get("OTEL_SERVICE_NAME", "plait")
    provider = TracerProvider(resource=Resource.create({"service.name": name, "service.version": __version__}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return Tracing(provider)
