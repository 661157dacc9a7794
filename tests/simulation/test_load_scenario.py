"""Scenario files: good ones load, bad ones are told with line, key, value and the nearest that is known."""

from pathlib import Path

import pytest

from plait.simulation.job_scenario import JobScenario
from plait.simulation.load_scenario import load_scenario, parse_scenario, shipped_names, shipped_title
from plait.simulation.scenario import TaskScenario
from plait.types.errors import ConfigError
from tests.simulation.scenarios import JOBS, TASKS

PARTS = JOBS[JOBS.index("rollout = ") : JOBS.index("slo")]

PAPER = '[[paper]]\nwhat = "it"\nfigure = "makspan_s"\nsystem = "plait"\nreads = "value"\nlow = 1.0'
ONE = "groups_per_step = 1\ngroup_size = 1\nlengths = { median_tokens = 20, max_tokens = 100 }"
OTHER_TASK = f'[[tasks]]\nname = "math-1"\nsteps = 2\n{ONE}'
FEW = "rollout = { devices = 8, seconds = 2 }\ntrain = { devices = 8, seconds = 4 }"
OTHER_JOB = f'[[jobs]]\nname = "small-0004"\nmodel = "Qwen3-8B"\nsteps = 2\n{FEW}'


def message(text: str) -> str:
    with pytest.raises(ConfigError) as failure:
        parse_scenario(text, "my.toml")
    return str(failure.value)


@pytest.mark.parametrize("name", shipped_names())
def test_shipped_scenarios_load_and_say_what_they_are(name: str) -> None:
    scenario = load_scenario(name)
    assert scenario.title == shipped_title(name) != ""
    assert scenario.systems


def test_both_kinds_load() -> None:
    assert isinstance(parse_scenario(TASKS), TaskScenario)
    assert isinstance(parse_scenario(JOBS), JobScenario)


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ('accelerator = "H100"', 'accelerator = "H10"', 6, 'cluster.accelerator: "H10" is not known; did you mean "H100"?'),
        ("devices = 3", "devicse = 3", 7, "cluster.devicse = 3: unknown key; did you mean 'devices'?"),
        ("devices = 3", 'devices = "3"', 7, 'cluster.devices = "3": must be a whole number'),
        ("steps = 3", "steps = 0", 19, 'tasks[0] (name "math").steps = 0: must be at least 1'),
        ("group_size = 4\n", "", 16, 'tasks[0] (name "math").group_size is missing: Answers to each prompt'),
        ("median_tokens = 200", "median = 200", 22, "tasks[0] (name \"math\").lengths.median = 200: unknown key"),
        ('"one_at_a_time"', '"one_at_time"', 30, 'sharing = "one_at_time": allowed are'),
        ('sharing = "one_at_a_time"', "", 28, 'layout = "shared" needs sharing'),
        ('kind = "tasks"', 'kind = "task"', 1, 'kind = "task": allowed are "tasks", "jobs"'),
        ("delay_s = 0.5", "delay_s = nan", 23, "delay_s = nan: give a finite number"),
        ("[training]\ndevices = 1", "[training]\ndevices = 3", 14, "training.devices = 3: of cluster.devices = 3 that leaves 0"),
        ("max_tokens = 1000", "max_tokens = 10000000", 22, "an engine's cache holds"),
        ('name = "Qwen3-0.6B"', 'name = "Kimi-K2"', None, "Kimi-K2 leaves no memory for caches on 1 H100"),
        ('name = "one at a time"', 'name = "plait"', 29, 'systems[1].name = "plait": another one has that name'),
        ("delay_s = 0.5", "delay_s = 0.5\nmax_staleness = 1", 32, "give the system max_staleness = 0"),
        ("delay_s = 0.5", "delay_s = 0.5\nturns = 2\nobservation_tokens = 900000", 22, "902256 tokens"),
        ("[[systems]]", f"{OTHER_TASK}\n[[systems]]", 26, 'one of the 2 of tasks "math" is called so'),
        ("[[systems]]", f"{PAPER}\n[[systems]]", 27, 'paper[0].figure = "makspan_s": figures are makespan_s, steps_per_hour,'),
        ("delay_s = 0.5", "delay_s = 1e300", 23, "delay_s = 1e+300: must be at most 1,000,000,000,000"),
        ("steps = 3", "steps = 10000000000000", 19, "steps = 10000000000000: must be at most"),
        ("group_size = 4", "group_size = 1000000", 20, "a step has 4,000,000 answers, of 1,000,000 at most"),
        ("count = 2", "count = 20000", 18, "count = 20000: 20,000 tasks, of 10,000 at most"),
        ('name = "math"', 'name = ""', 17, 'name = "": must not be empty'),
        ("[training]", "until_s = 3.0\n[training]", None, "model.until_s = 3.0: unknown key"),
        ("seed = 3", "until_s = 3.0", 3, 'until_s belongs to kind = "jobs", and this file is of kind = "tasks"'),
    ],
)  # fmt: skip
def test_a_fault_of_tasks_is_told_with_its_line_and_key(old: str, new: str, line: int | None, words: str) -> None:
    assert old in TASKS
    text = message(TASKS.replace(old, new, 1))
    assert words in text
    assert line is None or f"(line {line})" in text
    assert "my.toml" in text


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("devices = 32", "devices = 30", 6, "cluster.devices = 30: give a multiple of the 8 devices of a node"),
        ('policy = "pack"', 'policy = "packed"', 24, 'did you mean "pack"?'),
        ("rollout = { devices = 8,", "rollout = { devices = 80,", 8, 'jobs[0] (name "small") wants 88 devices'),
        ("slo = 1.3", "slo = 1.3\ncolocated = true\nstaleness = 1", 18, "give 0"),
        ("[[systems]]", "[[failures]]\nnode = 'node-9'\nat_s = 1.0\n[[systems]]", 19, 'nodes are "node-0000" to "node-0003"'),
        ("[[systems]]", f"{OTHER_JOB}\n[[systems]]", 19, 'jobs[1].name = "small-0004": one of the 4 of jobs "small" is called so'),
        ("seconds = 200", "minutes = 3", 14, 'jobs[0] (name "small").rollout.minutes = 3: unknown key'),
        ('kind = "jobs"\n', "", 7, 'kind missing, so it is "tasks", and the file has [[jobs]]: give kind = "jobs"'),
        ('kind = "jobs"', 'kind = "tasks"', 8, 'kind is "tasks", and the file has [[jobs]]: give kind = "jobs"'),
        ("count = 4", "count = 10000000", 10, "count = 10000000: 10,000,000 jobs, of 1,000,000 at most"),
        ('"Qwen3-8B"', '"Kimi-K2"', 14, "rollout.devices = 8: Kimi-K2 has 260 GB on each, and H100 has 80 GB; give 26 or more"),
        ("seconds = 200", "seconds = 200, state_bytes_per_device = 1e11", 14, "state_bytes_per_device = 1e+11: that is 100 GB"),
        (PARTS, PARTS.replace("= 8", "= 9", 1).replace("= 8", "= 17"), 8, "wants 9 + 17 devices, which no empty cluster of 32 has"),
    ],
)
def test_a_fault_of_jobs_is_told_with_its_line_and_key(old: str, new: str, line: int, words: str) -> None:
    assert old in JOBS
    text = message(JOBS.replace(old, new, 1))
    assert words in text
    assert f"(line {line})" in text


def test_all_faults_are_told_at_once() -> None:
    text = message(TASKS.replace("steps = 3", "steps = 0").replace("seed = 3", "sed = 3"))
    assert "2 faults" in text
    assert "(line 19)" in text
    assert "(line 3)" in text


def test_an_empty_file_is_told_so_and_names_where_to_start() -> None:
    assert message("# nothing\n") == "my.toml is empty. docs/simulation.md has a scenario of each kind to start from."


def test_where_the_number_of_devices_is_asked_for_it_may_be_missing_or_too_small() -> None:
    found = [parse_scenario(JOBS.replace("devices = 32", size, 1), is_any_size=True) for size in ("", "devices = 9")]
    assert [scenario.cluster.devices for scenario in found] == [16, 16], "what the largest job needs"


def test_what_is_not_toml_is_told_with_its_line() -> None:
    assert "at line 3" in message('kind = "tasks"\n\nthis is not toml\n')


def test_an_unknown_name_is_told_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match='no scenario "eigth-tasks"') as failure:
        load_scenario("eigth-tasks")
    assert 'Did you mean "eight-tasks"?' in str(failure.value)
    with pytest.raises(ConfigError, match=r"cannot read /nowhere/a\.toml"):
        load_scenario("/nowhere/a.toml")
    with pytest.raises(ConfigError, match='The shipped one is called "eight-tasks"'):
        load_scenario("eight-tasks.toml")


def test_a_profile_that_cannot_be_used_is_told_with_what_it_asks_for(tmp_path: Path) -> None:
    text = TASKS.replace('name = "Qwen3-0.6B"', 'name = "Qwen3-0.6B"\nprofile = "gone.json"').replace("devices = 1", "devices = 2")
    with pytest.raises(ConfigError) as failure:
        parse_scenario(text, "my.toml", tmp_path)
    told = str(failure.value)
    assert f'model.profile = "{tmp_path / "gone.json"}"' in told
    assert "plait profile" in told
    assert "training.devices = 2: with model.profile a device is the whole of what was measured; give 1" in told
    assert 'systems[1] (name "one at a time").layout = "shared"' in told
