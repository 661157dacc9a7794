"""Papers beside simulations: how a figure is read, what is told of wrong ones, and a small golden of each kind of scenario."""

from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import placement_jobs
from plait.simulation.job_scenario import JobScenario
from plait.simulation.job_workload import jobs_of
from plait.simulation.load_scenario import load_scenario, parse_scenario, shipped_names
from plait.simulation.paper_figures import PaperFigure, compare
from plait.simulation.plexrl_jobs import SIZES
from plait.simulation.simulate import simulate
from plait.types.errors import ConfigError

PAPERS = ("marlaas", "plexrl-2048", "seer-k2", "seer-moonlight", "seer-qwen2vl")
TASKS = """
kind = "tasks"
assumptions = ["One engine."]
measure_slowdowns = false
[cluster]
accelerator = "H100"
devices = 2
[model]
name = "Qwen3-0.6B"
[rollout]
max_rows = 16
chunk_tokens = 64
[training]
devices = 1
[[tasks]]
name = "a"
count = 2
steps = 2
groups_per_step = 2
group_size = 4
delay_s = 2.0
lengths = { median_tokens = 60, sigma = 0.8, max_tokens = 300 }
[[systems]]
name = "plait"
[[systems]]
name = "alone"
sharing = "one_at_a_time"
[[paper]]
what = "faster"
figure = "makespan_s"
system = "plait"
over = "alone"
reads = "inverse"
low = 1.5
high = 2.0
"""
JOBS = """
kind = "jobs"
[cluster]
accelerator = "H100"
devices = 32
[[jobs]]
name = "a"
count = 4
model = "Qwen3-8B"
steps = 20
rollout = { devices = 8, seconds = 100 }
train = { devices = 8, seconds = 20 }
[[systems]]
name = "isolated"
policy = "isolated"
[[systems]]
name = "pack"
policy = "pack"
[[paper]]
what = "makespan"
figure = "makespan_s"
system = "pack"
over = "isolated"
low = 0.7
"""


def figure(**changes: object) -> PaperFigure:
    return PaperFigure.model_validate({"what": "w", "figure": "f", "system": "a", "over": "b", "low": 2.0, **changes})


@given(st.floats(0.1, 10), st.floats(0.1, 10))
def test_a_figure_is_read_as_asked(mine: float, other: float) -> None:
    found = {"a": {"f": mine}, "b": {"f": other}}
    ratio, inverse, saved = compare([figure(reads=reads) for reads in ("ratio", "inverse", "saved")], found)
    assert ratio.ours == pytest.approx(mine / other)
    assert inverse.ours == pytest.approx(other / mine)
    assert saved.ours == pytest.approx(1 - mine / other)
    assert compare([figure(reads="value", over="")], found)[0].ours == mine


@given(st.floats(0.1, 10))
def test_inside_a_range_there_is_no_difference(ours: float) -> None:
    row = compare([figure(reads="value", over="", low=2.0, high=4.0)], {"a": {"f": ours}})[0]
    expected = (ours - 2) / 2 if ours < 2 else (ours - 4) / 4 if ours > 4 else 0.0
    assert row.difference == pytest.approx(expected)


def test_what_is_missing_has_no_figure() -> None:
    assert compare([figure()], {"a": {"f": None}, "b": {"f": 1.0}})[0].ours is None
    assert compare([figure()], {"a": {}, "b": {"f": 1.0}})[0].difference is None


def test_wrong_papers_are_told_with_their_line() -> None:
    with pytest.raises(ConfigError, match=r'paper\[0\]\.over = "nobody": systems are alone, plait \(line \d+\)'):
        parse_scenario(TASKS.replace('over = "alone"', 'over = "nobody"'))
    with pytest.raises(ConfigError, match=r"high = 1\.0 is below low = 1\.5"):
        parse_scenario(TASKS.replace("high = 2.0", "high = 1.0"))


@pytest.mark.parametrize("name", PAPERS)
def test_shipped_papers_are_read_and_say_what_they_assume(name: str) -> None:
    scenario = load_scenario(name)
    assert name in shipped_names()
    assert len(scenario.assumptions) >= 4
    assert len(scenario.paper) >= 5


def plexrl() -> JobScenario:
    scenario = load_scenario("plexrl-2048")
    assert isinstance(scenario, JobScenario)
    return scenario


def test_two_jobs_on_one_training_group_can_save_what_plexrl_saved_and_no_split_of_fewer_training_devices_can() -> None:
    """In powers of two."""
    saved = {row.figure.split("/")[1]: row.low for row in plexrl().paper if "/" in row.figure}
    for job in plexrl().jobs:
        rollout, train = job.rollout.devices, job.train.devices
        assert train / (rollout + train) / 2 > saved[job.model] > (train / 2) / (rollout + train / 2) / 2
    assert {size.model: (size.rollout_devices, size.train_devices) for size in SIZES} == {
        job.model: (job.rollout.devices, job.train.devices) for job in plexrl().jobs
    }
    assert [(size.rollout_devices, size.train_devices) for size in placement_jobs.SIZES] == [
        (job.rollout.devices, job.train.devices) for job in plexrl().jobs
    ]


@pytest.mark.parametrize(("name", "num_jobs", "num_steps"), [("plexrl-2048", 200, 40), ("sixteen-jobs", 16, 5)])
def test_a_quick_look_has_fewer_jobs_where_there_are_many_else_fewer_steps(name: str, num_jobs: int, num_steps: int) -> None:
    scenario = load_scenario(name)
    assert isinstance(scenario, JobScenario)
    jobs = jobs_of(scenario, scenario.systems[0], 0, is_quick=True)
    assert len(jobs) == num_jobs
    assert median(job.steps for job in jobs) == pytest.approx(num_steps, rel=0.2)
    whole = jobs_of(scenario, scenario.systems[0], 0, is_quick=False)
    if num_jobs < len(whole):
        assert set(jobs) <= set(whole)


def test_golden_tasks() -> None:
    result = simulate(parse_scenario(TASKS), "tasks")
    assert result.assumptions == ("One engine.",)
    assert {system.name: round(system.end_s, 2) for system in result.systems} == GOLDEN_TASKS
    assert result.paper[0].ours == pytest.approx(GOLDEN_TASKS["alone"] / GOLDEN_TASKS["plait"], rel=1e-2)
    assert simulate(parse_scenario(TASKS), "tasks").json() == result.json()


def test_golden_jobs() -> None:
    result = simulate(parse_scenario(JOBS), "jobs")
    assert {system.name: round(system.end_s) for system in result.systems} == GOLDEN_JOBS
    assert result.paper[0].ours == pytest.approx(GOLDEN_JOBS["pack"] / GOLDEN_JOBS["isolated"], rel=1e-2)


GOLDEN_TASKS = {"plait": 5.38, "alone": 9.94}
GOLDEN_JOBS = {"isolated": 4823, "pack": 4865}
