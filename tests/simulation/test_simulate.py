"""Whole scenarios: one history for a seed, the figures that are on record, and what must hold of any."""

import json

import pytest

from plait.simulation.figures import figures_of
from plait.simulation.load_scenario import parse_scenario
from plait.simulation.results import ScenarioResult
from plait.simulation.simulate import simulate
from tests.simulation.golden_files import FOLDER, TEXTS, figures, result_of


@pytest.fixture(scope="module")
def results() -> dict[str, ScenarioResult]:
    return {kind: result_of(kind) for kind in TEXTS}


@pytest.mark.parametrize("kind", TEXTS)
def test_a_seed_gives_the_same_bytes_and_another_one_others(results: dict[str, ScenarioResult], kind: str) -> None:
    again = simulate(parse_scenario(TEXTS[kind]), "golden", seed=1)
    assert again.json() == results[kind].json()
    if kind == "tasks":
        assert simulate(parse_scenario(TEXTS[kind]), "golden", seed=2).json() != results[kind].json()


@pytest.mark.parametrize("kind", TEXTS)
def test_figures_are_those_on_record(results: dict[str, ScenarioResult], kind: str) -> None:
    """`python -m tests.simulation.golden_files` records new ones."""
    recorded = json.loads((FOLDER / f"{kind}.json").read_text(encoding="utf-8"))
    found = figures(results[kind])
    assert list(found) == list(recorded)
    for system in recorded:
        assert found[system].keys() == recorded[system].keys()
        for key, value in recorded[system].items():
            assert found[system][key] == (None if value is None else pytest.approx(value, rel=1e-6)), (system, key)


@pytest.mark.parametrize("kind", TEXTS)
def test_shares_are_shares_and_all_work_is_done(results: dict[str, ScenarioResult], kind: str) -> None:
    for system in results[kind].systems:
        for figure in figures_of(kind):
            value = system.figures.get(figure.key)
            assert value is None or (value >= 0 and (figure.unit != "share" or value <= 1 + 1e-9)), (system.name, figure.key)
        for line in system.groups:
            assert all(0 <= share <= 1 + 1e-5 for share in line.shares), "no device runs two things"
        assert [work.steps for work in system.works] == [3, 3] if kind == "tasks" else [12] * 4
        assert all(work.end_s is not None and work.arrival_s <= work.end_s <= system.end_s + 1e-6 for work in system.works)


def test_together_is_faster_than_one_at_a_time_and_packed_needs_fewer_devices(results: dict[str, ScenarioResult]) -> None:
    together, apart = (system.figures for system in results["tasks"].systems)
    assert (together["steps_per_hour"] or 0) > 1.2 * (apart["steps_per_hour"] or 0)
    isolated, packed = (system.figures for system in results["jobs"].systems)
    assert (packed["device_hours_per_step"] or 0) < 0.95 * (isolated["device_hours_per_step"] or 0)


def test_progress_goes_from_nothing_to_all() -> None:
    told: list[float | None] = []
    scenario = parse_scenario(TEXTS["tasks"])
    simulate(scenario, "x", is_quick=True, on_progress=lambda what, share: told.append(share))
    shares = [share for share in told if share is not None]
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
