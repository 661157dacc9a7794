"""Scenarios of jobs that last for some days."""

import pytest

from plait.simulation.job_scenario import JobScenario
from plait.simulation.job_workload import jobs_of
from plait.simulation.lasting import lasting
from plait.simulation.load_scenario import load_scenario, parse_scenario
from tests.simulation.scenarios import JOBS

OTHER = """
[[jobs]]
name = "large"
count = 2
model = "Qwen3-14B"
steps = 20
rollout = { devices = 16, seconds = 300 }
train = { devices = 8, seconds = 80 }
"""


def scenario_of(text: str) -> JobScenario:
    scenario = parse_scenario(text)
    assert isinstance(scenario, JobScenario)
    return scenario


def test_jobs_fill_the_cluster_for_so_many_days_in_their_proportions() -> None:
    scenario = lasting(scenario_of("days = 5\n" + JOBS + OTHER))
    small, large = (kind.count for kind in scenario.jobs)
    jobs = jobs_of(scenario, scenario.systems[0], 0, False)
    assert len(jobs) == small + large
    assert small == pytest.approx(2 * large, abs=1)
    alone_s = sum(job.num_devices * job.alone_s for job in jobs)
    assert alone_s == pytest.approx(5 * 86_400 * scenario.cluster.devices, rel=0.03)
    arrivals_s = [job.arrival_s for job in jobs if job.kind == "small"]
    assert arrivals_s == pytest.approx([5 * 86_400 * number / small for number in range(small)])
    assert lasting(scenario) is scenario


def test_kinds_that_spread_fill_it_on_average() -> None:
    shipped = load_scenario("plexrl-2048")
    assert isinstance(shipped, JobScenario)
    scenario = lasting(shipped.model_copy(update={"days": 30}))
    jobs = jobs_of(scenario, scenario.systems[0], 0, False)
    alone_s = sum(job.num_devices * job.alone_s for job in jobs)
    assert alone_s == pytest.approx(30 * 86_400 * 2048, rel=0.05)
    assert len({job.job_id for job in jobs}) == len(jobs) > 1000


def test_without_days_nothing_changes() -> None:
    scenario = scenario_of(JOBS)
    assert lasting(scenario) is scenario
