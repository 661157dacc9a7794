"""What the service holds at the moment, for Prometheus."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client.core import GaugeMetricFamily, InfoMetricFamily
from prometheus_client.registry import Collector

from plait import __version__

if TYPE_CHECKING:
    from plait.server.service import Service

TEXTS = {
    "resident_adapters": "Adapters that the trainer holds.",
    "waiting_calls": "Calls of models that were accepted and have not ended.",
    "live_sessions": "Client sessions that send heartbeats.",
    "accepted_samples": "Samples that were accepted and have not ended.",
    "waiting_samples": "Samples that wait for the engine, before or between chunks.",
    "running_samples": "Samples with a chunk at the engine.",
    "cache_tokens": "Tokens whose cache the engine keeps for samples between chunks.",
    "pending_futures": "Requests whose result is not there yet.",
    "held_futures": "Results that are kept for their owner.",
    "held_future_bytes": "Bytes of those results.",
    "database_waiting": "Works that wait for the database.",
    "stopping": "1 after SIGTERM.",
}


class ServiceGauges(Collector):
    def __init__(self, service: "Service") -> None:
        self._service = service

    def describe(self) -> list[GaugeMetricFamily]:
        return []

    def collect(self) -> Iterator[GaugeMetricFamily | InfoMetricFamily]:
        yield InfoMetricFamily("plait", "Version and base model.", {"version": __version__, "model": self._service.served.names[0]})
        for name, value in self._values():
            yield GaugeMetricFamily(f"plait_{name}", TEXTS[name], value)

    def _values(self) -> Iterator[tuple[str, float]]:
        service, scheduler = self._service, self._service.backend.rollout.scheduler
        futures = service.futures.table.total_counts
        yield "resident_adapters", service.models.num_resident
        yield "waiting_calls", service.models.num_waiting
        yield "live_sessions", service.sessions.num_live
        yield "accepted_samples", service.sampling.num_samples
        yield "waiting_samples", scheduler.num_waiting
        yield "running_samples", scheduler.num_running
        yield (
            "cache_tokens",
            sum(len(each.context_tokens) + len(each.tokens) for each in scheduler if each.engine and each.cache_handle),
        )
        yield "pending_futures", futures.num_pending
        yield "held_futures", futures.num_held
        yield "held_future_bytes", futures.held_bytes
        yield "database_waiting", service.database.num_waiting
        yield "stopping", float(service.gate.is_closed)
