"""What the benchmark of the simulator's speed counts."""

import pytest

from benchmarks import simulation_speed
from benchmarks.simulation_speed import measure, run_tasks


def test_a_case_counts_what_happened_and_how_long_it_took() -> None:
    row = measure(run_tasks, "eight-tasks", "plait", True)
    assert row["events"] == row["engine_steps"] + 2 * row["chunks"]
    assert row["tokens"] > row["engine_steps"] > row["chunks"] > 0
    assert 0 < row["clock_events"] < row["events"]
    assert row["events_per_s"] == pytest.approx(row["events"] / row["seconds"])
    assert row["days"] / (row["seconds"] / 60) == pytest.approx(row["days_per_minute"])
    assert row["peak_bytes"] >= row["grown_bytes"] >= 0


def test_headlines_are_events_a_second_and_days_a_minute() -> None:
    shared = {"case": simulation_speed.JOBS, "system": "pack", "events_per_s": 499_999.0, "days_per_minute": 3.0}
    rollout = {"case": "seer-moonlight", "system": "context", "events_per_s": 500_000.0, "days_per_minute": 0.0}
    found = simulation_speed._headlines([shared, rollout])
    assert {name: line["met"] for name, line in found.items()} == {
        "plexrl-2048, pack": False,
        "seer-moonlight, context": True,
        "plexrl-2048, pack: simulated days a minute": True,
    }
