"""How each rollout engine stood when it last reported, for Prometheus."""

from collections.abc import Callable, Iterable, Iterator

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from plait.observe.events import EngineSample

TEXTS = {
    "engine_rows": "Generations that an engine decodes, by its latest report.",
    "engine_waiting_chunks": "Chunks that an engine was given and has not begun.",
    "engine_reserved_tokens": "Tokens of an engine's cache that are reserved for the chunks that it has.",
    "engine_capacity_tokens": "Tokens of an engine's cache that may be reserved.",
    "engine_moves": "Generations that went on at an engine after another had their last chunk.",
}
LABELS = ("base_model", "engine")
COUNTS = "engine_count"
COUNTS_TEXT = "What an engine has counted since its process started, by name: cache hits of each tier, drafted tokens and others."


class EngineGauges(Collector):
    def __init__(self, read: Callable[[], Iterable[tuple[str, EngineSample]]]) -> None:
        """`read` gives base models and the latest of their engines."""
        self._read = read

    def describe(self) -> list[GaugeMetricFamily]:
        return []

    def collect(self) -> Iterator[GaugeMetricFamily]:
        families = {name: GaugeMetricFamily(f"plait_{name}", text, labels=LABELS) for name, text in TEXTS.items()}
        counts = GaugeMetricFamily(f"plait_{COUNTS}", COUNTS_TEXT, labels=[*LABELS, "name"])
        for base_model, sample in self._read():
            for name, value in _values(sample).items():
                families[name].add_metric([base_model, sample.engine], value)
            for name, value in sample.counters.items():
                counts.add_metric([base_model, sample.engine, name], value)
        yield from (*families.values(), counts)


def _values(sample: EngineSample) -> dict[str, float]:
    return {
        "engine_rows": sample.num_rows,
        "engine_waiting_chunks": sample.num_waiting,
        "engine_reserved_tokens": sample.reserved_tokens,
        "engine_capacity_tokens": sample.cache_tokens,
        "engine_moves": sample.num_moves,
    }
