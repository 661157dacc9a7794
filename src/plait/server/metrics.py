"""What Prometheus is told: counters and histograms, fed by what happens; `gauges.py` adds what is so at the moment.

The number of series is bounded: tenants beyond `MAX_TENANTS` share one label, and only the `MAX_MODELS` models that changed last
have a version.
"""

import time
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Collection, Iterator
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector, disable_created_metrics, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from plait.cluster.messages import Busy
from plait.cluster.model_messages import CallDone
from plait.observe.meters import UTILISATION_WINDOW_S, BusyMeter
from plait.server.backend import Backend, ModelReply
from plait.server.call import Call, CallFailure, CallResult
from plait.server.sample_call import SampleCall, Sampled

MAX_TENANTS = 200
MAX_MODELS = 100
OTHERS = "(others)"
METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))
SECONDS = (0.005, 0.02, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)
SLICES = (0, 1, 2, 4, 8, 16, 32, 64)
GAPS = (1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0)

disable_created_metrics()  # Times of birth would add a series to each series.


class Metrics:
    """Also a listener of the trainer and of the workers' Busy messages."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._tenants: set[str] = set()
        self._versions: OrderedDict[str, int] = OrderedDict()
        self._meters: defaultdict[tuple[str, str], BusyMeter] = defaultdict(BusyMeter)
        self._started_s = time.time()
        self._make_http()
        self._make_work()
        self.registry.register(_Read(self._latest))

    def _make_http(self) -> None:
        self._requests = self._counter("http_requests", "HTTP requests answered.", "method", "route", "status")
        self._request_s = self._histogram("http_request_seconds", "From an HTTP request to the end of its answer.", "route")

    def _make_work(self) -> None:
        self._calls = self._counter("calls", "Calls of models that ended: done, user_error or server_error.", "kind", "outcome")
        self._call_wait_s = self._histogram("call_wait_seconds", "From a call's acceptance to its turn.", "kind")
        self._call_wait_slices = self._histogram(
            "call_wait_slices", "Most slices of other tenants that ran while a call waited for one of its own.", buckets=SLICES
        )
        self._call_run_s = self._histogram("call_run_seconds", "A call's work, from its turn on.", "kind")
        self._sample_wait_s = self._histogram("sample_wait_seconds", "From a sample's acceptance to the end of its first chunk.")
        self._sample_s = self._histogram("sample_seconds", "From a sample's acceptance to its last token.")
        self._tokens = self._counter("tokens", "Tokens: prompt (computed), cached, sampled or trained.", "tenant", "type")
        self._busy_s = self._counter("worker_busy_seconds", "Time in which a worker worked.", "base_model", "worker")
        self._worker_tokens = self._counter("worker_tokens", "Tokens that a worker computed.", "base_model", "worker")
        self._trainer_losses = self._counter("trainer_losses", "How often a training worker was lost.")
        self._gaps = self._histogram(
            "logprob_gap", "Largest gap between the trainer's and the sampler's log-probabilities of a call.", buckets=GAPS
        )

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"plait_{name}", text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str, *labels: str, buckets: tuple[float, ...] = SECONDS) -> Histogram:
        return Histogram(f"plait_{name}", text, labels, registry=self.registry, buckets=buckets)

    def listen(self, backend: Backend, base_model: str) -> None:
        backend.listeners.append(self)
        backend.busy_listeners.append(partial(self.on_busy, base_model))

    def page(self) -> bytes:
        """In Prometheus' text format."""
        return generate_latest(self.registry)

    # ---- what happens

    def answered(self, method: str, route: str, status: int, duration_s: float) -> None:
        self._requests.labels(method if method in METHODS else OTHERS, route, str(status)).inc()
        self._request_s.labels(route).observe(duration_s)

    def call_ran(self, call: Call, start_s: float, end_s: float) -> None:
        """On the monotonic clock."""
        self._call_wait_s.labels(call.kind).observe(max(0.0, start_s - call.accepted_s))
        self._call_run_s.labels(call.kind).observe(end_s - start_s)

    def call_ended(self, tenant_id: str, call: Call, result: CallResult | CallFailure) -> None:
        if isinstance(result, CallFailure):
            self._calls.labels(call.kind, "user_error" if result.is_user_error else "server_error").inc()
            return
        self._calls.labels(call.kind, "done").inc()
        self._tokens.labels(self._tenant(tenant_id), "trained").inc(result.num_trained_tokens)
        if result.version is not None:
            self._versions[call.model_id] = result.version
            self._versions.move_to_end(call.model_id)
            if len(self._versions) > MAX_MODELS:
                self._versions.popitem(last=False)

    def first_chunk(self, wait_s: float) -> None:
        self._sample_wait_s.observe(wait_s)

    def sample_ended(self, total_s: float) -> None:
        self._sample_s.observe(total_s)

    def sampled(self, call: SampleCall, sampled: Sampled) -> None:
        tenant, num_prompt = self._tenant(call.sampler.tenant_id), len(call.prompt_tokens)
        num_cached = min(sampled.num_cached_tokens, num_prompt)
        self._tokens.labels(tenant, "prompt").inc(num_prompt - num_cached)
        self._tokens.labels(tenant, "cached").inc(num_cached)
        self._tokens.labels(tenant, "sampled").inc(sum(len(segment.tokens) for segment in sampled.segments))

    def on_busy(self, base_model: str, worker: str, busy: Busy) -> None:
        self._meters[base_model, worker].add(busy.start_s, busy.end_s, busy.num_tokens)
        self._busy_s.labels(base_model, worker).inc(max(0.0, busy.end_s - busy.start_s))
        self._worker_tokens.labels(base_model, worker).inc(busy.num_tokens)

    # ---- ModelListener

    def on_reply(self, reply: ModelReply) -> None:
        if not isinstance(reply, CallDone):
            return
        self._call_wait_slices.observe(reply.longest_wait_slices)
        if "logprob_gap_max" in reply.metrics:
            self._gaps.observe(reply.metrics["logprob_gap_max"])

    def on_trainer_lost(self, owners: Collection[str], num_left: int) -> None:
        self._trainer_losses.inc()

    def on_trainer_back(self) -> None:
        pass

    # ---- for the page

    def _tenant(self, tenant_id: str) -> str:
        if tenant_id not in self._tenants and len(self._tenants) < MAX_TENANTS:
            self._tenants.add(tenant_id)
        return tenant_id if tenant_id in self._tenants else OTHERS

    def _latest(self) -> Iterator[GaugeMetricFamily]:
        now_s = time.time()
        window_s = min(UTILISATION_WINDOW_S, max(1e-3, now_s - self._started_s))
        busy = GaugeMetricFamily(
            "plait_worker_utilisation", "Busy share of the last minute.", labels=["base_model", "worker"]
        )  # fmt: skip
        for labels, meter in self._meters.items():
            busy.add_metric(labels, min(1.0, meter.recent(now_s, window_s)[0] / window_s))
        versions = GaugeMetricFamily("plait_model_version", f"Of the {MAX_MODELS} models that changed last.", labels=["model"])
        for model_id, version in self._versions.items():
            versions.add_metric([model_id], version)
        yield from (busy, versions)


class _Read(Collector):
    """Asks when the page is made."""

    def __init__(self, read: Callable[[], Iterator[GaugeMetricFamily]]) -> None:
        self._read = read

    def collect(self) -> Iterator[GaugeMetricFamily]:
        return self._read()

    def describe(self) -> list[GaugeMetricFamily]:
        return []
