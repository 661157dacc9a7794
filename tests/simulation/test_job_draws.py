"""The jobs that are drawn for a scenario: by seed, as spread as asked, and as large as they are."""

import math
from itertools import pairwise
from statistics import fmean, median, pstdev

import pytest

from plait.simulation.check_scenario import cache_tokens
from plait.simulation.job_scenario import JobScenario, JobSettings, JobSystem, PartSettings
from plait.simulation.job_shape import JobShape
from plait.simulation.job_workload import jobs_of
from plait.simulation.load_scenario import parse_scenario
from plait.simulation.philly_jobs import nearest_kind
from plait.simulation.plexrl_jobs import SIZES, PlexrlWorkload, colocated, plexrl_jobs
from plait.simulation.scenario import TaskScenario
from tests.simulation.scenarios import JOBS, TASKS

KIND = JobSettings(
    name="a", count=400, model="Qwen3-8B", steps=100, steps_sigma=0.5, seconds_sigma=0.3, arrival_s=10.0, arrival_every_s=60.0,
    arrivals="poisson", rollout=PartSettings(devices=4, seconds=50.0), train=PartSettings(devices=8, seconds=20.0, calls=2),
)  # fmt: skip
ANY = JobSystem(name="any")


def drawn(kind: JobSettings = KIND, seed: int = 0, system: JobSystem = ANY) -> list[JobShape]:
    scenario = parse_scenario(JOBS)
    assert isinstance(scenario, JobScenario)
    return jobs_of(scenario.model_copy(update={"jobs": (kind,)}), system, seed, False)


def test_jobs_are_drawn_by_the_seed_and_the_same_under_each_system() -> None:
    assert drawn(seed=1) == drawn(seed=1) != drawn(seed=2)
    apart, together = drawn(), drawn(system=JobSystem(name="c", colocated=True))
    assert [(job.steps, job.arrival_s) for job in apart] == [(job.steps, job.arrival_s) for job in together]
    assert {(job.rollout.num_devices, job.train.num_devices, job.num_devices) for job in together} == {(8, 8, 8)}


def test_steps_seconds_and_arrivals_are_as_spread_as_asked() -> None:
    jobs = drawn()
    assert median(job.steps for job in jobs) == pytest.approx(100, rel=0.1)
    assert pstdev(math.log(job.steps) for job in jobs) == pytest.approx(0.5, rel=0.15)
    factors = [job.rollout.call_s / 50 for job in jobs]
    assert pstdev(map(math.log, factors)) == pytest.approx(0.3, rel=0.15)
    assert [job.train.call_s / 20 for job in jobs] == pytest.approx(factors)
    gaps_s = [after.arrival_s - before.arrival_s for before, after in pairwise(jobs)]
    assert jobs[0].arrival_s == 10.0
    assert fmean(gaps_s) == pytest.approx(60, rel=0.15)
    assert pstdev(gaps_s) == pytest.approx(60, rel=0.25), "exponential"


def test_state_is_the_weights_and_in_training_all_that_goes_with_them() -> None:
    job = drawn()[0]
    assert job.rollout.bytes_per_device == int(8.19e9 * 2 / 4)
    assert job.train.bytes_per_device == int(8.19e9 * 16 / 8)
    told = KIND.model_copy(update={"train": KIND.train.model_copy(update={"state_bytes_per_device": 5e9})})
    assert drawn(told)[0].train.bytes_per_device == 5_000_000_000


def test_an_asynchronous_rollout_takes_the_whole_period_and_a_synchronous_one_what_training_leaves() -> None:
    for staleness in (0, 1):
        workload = PlexrlWorkload(1, 1.0, staleness, SIZES[:1], kind_sigma=0.0)
        (job,) = plexrl_jobs(workload, 3)
        assert job.period_s == pytest.approx(120.0)
        assert job.rollout.step_s == pytest.approx(120.0 if staleness else 120.0 - job.train.step_s)
        assert (job.rollout.num_calls - 1) * job.rollout.delay_s == pytest.approx(0.1 * job.rollout.step_s)
        assert job.train.step_s == pytest.approx(120 * 0.2, rel=0.11)


def test_colocated_jobs_have_all_devices_for_each_part() -> None:
    (job,) = plexrl_jobs(PlexrlWorkload(1, 1.0, 1, SIZES[:1]), 3)
    (both,) = colocated([job], rollout_scaling=0.5)
    assert (both.num_devices, both.rollout.num_devices, both.train.num_devices, both.staleness) == (24, 24, 24, 0)
    assert both.train.call_s == pytest.approx(job.train.call_s * 16 / 24)
    assert both.rollout.call_s == pytest.approx(job.rollout.call_s / math.sqrt(3))
    assert both.fill == pytest.approx(job.fill / math.sqrt(3)), "three times the devices draw as much in less than that"
    assert both.rollout.bytes_per_device == job.rollout.bytes_per_device * 8 // 24


def test_a_job_of_a_trace_becomes_the_kind_whose_ratio_is_nearest() -> None:
    """Of 12, 24 and 60 devices."""
    kinds = [
        KIND.model_copy(update={"name": str(4 * num), "rollout": PartSettings(devices=num, seconds=1.0),
                                "train": PartSettings(devices=3 * num, seconds=1.0)})
        for num in (3, 6, 15)
    ]  # fmt: skip
    found = [nearest_kind(kinds, num).name for num in (1, 16, 18, 36, 40, 500)]
    assert found == ["12", "12", "24", "24", "60", "60"]


def test_caches_have_what_weights_leave_of_all_devices_of_an_engine() -> None:
    scenario = parse_scenario(TASKS.replace("[training]", "[rollout]\ndevices_per_engine = 2\nmemory_share = 0.5\n[training]"))
    assert isinstance(scenario, TaskScenario)
    assert cache_tokens(scenario) == int((2 * 0.5 * 80e9 - 0.596e9 * 2) / (28 * 2048 * 2))
