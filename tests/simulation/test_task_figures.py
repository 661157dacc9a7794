"""Figures of tasks against what they are told to mean."""

from typing import Any

import pytest

from plait.simulation.load_scenario import parse_scenario
from plait.simulation.simulate import simulate
from tests.simulation.scenarios import TASKS

ONE = TASKS[: TASKS.index("[[systems]]")].replace("count = 2", "count = 1")


def figures(text: str) -> tuple[dict[str, Any], Any]:
    (system,) = simulate(parse_scenario(text), "x").systems
    return system.figures, system.works[0]


def test_time_before_the_first_arrival_counts_for_nothing() -> None:
    now, _ = figures(ONE)
    later, work = figures(ONE.replace("delay_s = 0.5", "delay_s = 0.5\narrival_s = 100.0"))
    assert (now["slowdown_mean"], later["slowdown_mean"]) == (pytest.approx(1.0), pytest.approx(1.0))
    assert work.arrival_s == 100.0
    for key in ("makespan_s", "steps_per_hour", "tokens_per_s", "first_step_s", "device_hours", "cost", "rows_mean"):
        assert later[key] == pytest.approx(now[key]), key


def test_figures_follow_from_each_other() -> None:
    found, work = figures(ONE)
    hours = found["makespan_s"] / 3600
    assert found["steps_per_hour"] == pytest.approx(3 / hours)
    assert (found["device_hours"], found["cost"]) == (pytest.approx(3 * hours), pytest.approx(2.0 * 3 * hours))
    assert found["device_hours_per_step"] == pytest.approx(hours)
    assert work.end_s == pytest.approx(found["makespan_s"])
    assert 3 * found["utilisation"] == pytest.approx(2 * found["rollout_utilisation"] + found["training_utilisation"])
    assert found["step_s"] == pytest.approx(found["rollout_s"] + found["training_wait_s"])
    assert 3 * found["step_s"] == pytest.approx(found["makespan_s"]), "strictly on-policy: one step after another"
    assert found["tail_share"] == pytest.approx(found["tail_s"] / found["rollout_s"])
