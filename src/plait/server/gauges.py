"""What the service holds at the moment, for Prometheus."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client.core import GaugeMetricFamily, InfoMetricFamily
from prometheus_client.registry import Collector

from plait import __version__

if TYPE_CHECKING:
    from plait.server.bases import Base
    from plait.server.service import Service

TEXTS_OF_BASES = {
    "resident_adapters": "Adapters of models that the trainers of a base model hold.",
    "waiting_samples": "Samples that wait for an engine, before or between chunks.",
    "running_samples": "Samples with a chunk at an engine.",
    "cache_tokens": "Tokens whose cache the engines keep for samples between chunks.",
}
TEXTS = {
    "waiting_calls": "Calls of models that were accepted and have not ended.",
    "live_sessions": "Client sessions that send heartbeats.",
    "accepted_samples": "Samples that were accepted and have not ended.",
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
        info = InfoMetricFamily("plait", "Version and base models.", labels=["model"])
        for base in self._service.bases:
            info.add_metric([base.name], {"version": __version__})
        yield info
        for name, value in self._values():
            yield GaugeMetricFamily(f"plait_{name}", TEXTS[name], value)
        yield from self._of_bases()

    def _of_bases(self) -> Iterator[GaugeMetricFamily]:
        families = {
            name: GaugeMetricFamily(f"plait_{name}", text, labels=["base_model"]) for name, text in TEXTS_OF_BASES.items()
        }  # fmt: skip
        for base in self._service.bases:
            for name, value in self._values_of(base):
                families[name].add_metric([base.name], value)
        yield from families.values()

    def _values_of(self, base: "Base") -> Iterator[tuple[str, float]]:
        scheduler = base.backend.rollout.scheduler
        yield "resident_adapters", self._service.models.num_resident(base.trainer)
        yield "waiting_samples", scheduler.num_waiting
        yield "running_samples", scheduler.num_running
        yield (
            "cache_tokens",
            sum(len(each.context_tokens) + len(each.tokens) for each in scheduler if each.engine and each.cache_handle),
        )

    def _values(self) -> Iterator[tuple[str, float]]:
        service, futures = self._service, self._service.futures.table.total_counts
        yield "waiting_calls", service.models.num_waiting
        yield "live_sessions", service.sessions.num_live
        yield "accepted_samples", service.sampling.num_samples
        yield "pending_futures", futures.num_pending
        yield "held_futures", futures.num_held
        yield "held_future_bytes", futures.held_bytes
        yield "database_waiting", service.database.num_waiting
        yield "stopping", float(service.gate.is_closed)
