"""Engines on the page of metrics."""

from prometheus_client import CollectorRegistry

from plait.observe.events import EngineSample
from plait.server.engine_gauges import EngineGauges


def test_each_engine_has_its_own_values() -> None:
    samples = [
        EngineSample(
            time_s=1.0, engine=f"rollout-{n}", num_rows=n, reserved_tokens=10 * n, cache_tokens=100, counters={"drafts": n}
        )
        for n in (1, 2)
    ]
    registry = CollectorRegistry()
    registry.register(EngineGauges(lambda: [("base", sample) for sample in samples]))
    assert registry.get_sample_value("plait_engine_rows", {"base_model": "base", "engine": "rollout-2"}) == 2
    assert registry.get_sample_value("plait_engine_reserved_tokens", {"base_model": "base", "engine": "rollout-1"}) == 10
    assert registry.get_sample_value("plait_engine_count", {"base_model": "base", "engine": "rollout-2", "name": "drafts"}) == 2
