"""The simulation of `benchmarks.plexrl`: what is taken from a job's trace alone, and what follows from it for systems."""

import pytest

from benchmarks.plexrl_systems import COLOCATED, ISOLATED, PLAIT_ONE, SPLIT, UNLIMITED
from benchmarks.simulation_plexrl import FIGURES, plexrl_rows, read_profile
from benchmarks.simulation_plexrl_profile import AloneJob, Spread, spread, steps_of
from benchmarks.simulation_plexrl_run import AloneRates, line, simulate_system
from benchmarks.simulation_scores import RESULTS, headlines, measured
from plait.placement.demand_trace import FunctionRecord
from plait.placement.job import Role
from plait.residency.tier import Tier

JOB = AloneJob(
    8, {"rollout": Spread(0.2, 0.0), "train": Spread(0.1, 0.0)}, {"rollout": Spread(0.45, 0.0), "train": Spread(0.25, 0.0)},
    {"rollout": 10, "train": 20}, {"rollout": 0.02, "train": 0.03}, {"rollout": 0.0, "train": 0.01},
)  # fmt: skip


def record(function: str, start_s: float, end_s: float) -> FunctionRecord:
    return FunctionRecord(start_s, end_s, function, Role.ROLLOUT if function == "sample" else Role.TRAIN)


def test_steps_are_found_in_a_trace() -> None:
    """Opening is no step; a rollout may have several calls; what has not ended does not count."""
    trace = [record("open", 0, 1), record("sample", 2, 3), record("sample", 3.5, 4), record("update", 6, 7), record("sample", 8, 9)]
    assert steps_of(trace) == [((2, 4), (6, 7))]


def test_a_spread_has_the_mean_of_what_was_measured() -> None:
    found = spread([1.0, 2.0, 4.0, 5.0])
    assert found.median_s * 2.718281828 ** (found.sigma**2 / 2) == pytest.approx(3.0)
    assert spread([2.0, 2.0]) == Spread(2.0, 0.0)


@pytest.mark.parametrize(
    ("points", "expected"),
    [
        ([(1, 3), (2, 5), (3, 7)], (1, 2)),
        ([(1, 5), (2, 3)], (4, 0)),
        ([(1, 1), (2, 4)], (0, 9 / 5)),
        ([(2, 3), (2, 5)], (4, 0)),
    ],
)
def test_moves_take_a_time_and_a_rate_that_are_not_below_zero(
    points: list[tuple[float, float]], expected: tuple[float, float]
) -> None:
    assert line(points) == pytest.approx(expected)


def test_each_way_has_its_own_rate_and_only_what_trains_is_written() -> None:
    rates = AloneRates([JOB])
    assert rates.estimate_s((Tier.HOST, Tier.DEVICE), 10) == pytest.approx(0.02)
    assert rates.estimate_s((Tier.DEVICE, Tier.HOST), 20) == pytest.approx(0.01)


def test_a_job_alone_takes_the_sum_of_its_parts_and_others_fit_between() -> None:
    jobs = {"a": JOB, "b": JOB}
    for system in (ISOLATED, SPLIT, COLOCATED):
        assert simulate_system(system, jobs) == pytest.approx({"a": 1.0, "b": 1.0})
    together, moving = simulate_system(UNLIMITED, jobs), simulate_system(PLAIT_ONE, jobs)
    assert together == pytest.approx({"a": 1.0, "b": 1.0})  # They fit into each other's gaps.
    assert 1.0 < moving["a"] <= 1.0 + 2 * (0.03 + 0.01 + 0.02 + 0.01)


def test_what_is_shipped_says_what_was_measured_within_bounds() -> None:
    rows = list(plexrl_rows())
    assert {row["system"] for row in rows} == {row["system"] for row in measured("plexrl")}
    found = headlines("plexrl", rows, FIGURES)
    assert found["plexrl_within_15_percent"]["value"] >= 0.8
    assert found["plexrl_orderings"]["value"] >= 0.8


def test_the_profile_is_of_jobs_alone_and_whole() -> None:
    for jobs in read_profile(RESULTS / "profile-plexrl.json").values():
        for job in jobs.values():
            assert job.num_steps >= 4
            assert min(job.num_bytes.values()) > 0
            assert min(*job.call_s.values(), *job.after_s.values(), key=lambda found: found.median_s).median_s > 0
