"""Reading Philly traces, and jobs that arrive like theirs."""

import json
from pathlib import Path
from typing import Any

import pytest

from plait.simulation.job_scenario import JobScenario, JobSystem
from plait.simulation.job_workload import jobs_of
from plait.simulation.lasting import lasting
from plait.simulation.load_scenario import parse_scenario
from plait.simulation.philly import read_philly
from plait.types.errors import ConfigError
from tests.simulation.scenarios import JOBS


def entry(job_id: str, submitted: str, *attempts: tuple[str | None, str | None, int]) -> dict[str, Any]:
    """As in the README of the traces."""
    return {
        "status": "Pass", "vc": "ee9e8c", "jobid": job_id, "user": "ce2f4c", "submitted_time": submitted,
        "attempts": [
            {"start_time": start, "end_time": end, "detail": [{"ip": "m47", "gpus": [f"gpu{number}" for number in range(gpus)]}]}
            for start, end, gpus in attempts
        ],
    }  # fmt: skip


def write(path: Path, entries: object) -> Path:
    file = path / "cluster_job_log"
    file.write_text(json.dumps(entries))
    return file


DAY = "2017-10-07 "


def test_jobs_come_in_order_with_their_attempts(tmp_path: Path) -> None:
    later = entry("b", DAY + "02:00:00", (DAY + "02:10:00", None, 4), (None, None, 2))
    first = entry("a", DAY + "01:00:00", (DAY + "01:01:00", DAY + "01:02:00", 8), (DAY + "01:05:00", DAY + "03:05:00", 16))
    never = entry("c", DAY + "01:30:00")
    jobs = read_philly(write(tmp_path, [later, first, never]))
    assert [(job.job_id, job.submitted_s, job.num_devices, job.run_s) for job in jobs] == [
        ("a", 0.0, 16, 7260.0), ("c", 1800.0, 0, 0.0), ("b", 3600.0, 4, 0.0),
    ]  # fmt: skip
    assert [attempt.start_s for attempt in jobs[0].attempts] == [60.0, 300.0]
    assert jobs[2].attempts[0].end_s is None


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"attempts": 3}, r"entry 1: .*attempts"),
        ({"attempts": [{"detail": [{"ip": "m1", "gpus": ["gpu0", 5]}]}]}, r"entry 1: .*attempts\[0\]\.detail\[0\]\.gpus\[1\]"),
        ({"submitted_time": "yesterday"}, r"entry 1 \(jobid b\): submitted_time is 'yesterday'"),
        ({"submitted_time": None}, r"entry 1 \(jobid b\): submitted_time is missing"),
        (
            {"attempts": [{"start_time": DAY + "03:00:00", "end_time": DAY + "02:00:00", "detail": []}]},
            r"entry 1 \(jobid b\): attempts\[0\]\.end_time .* before its start",
        ),
        ({"attempts": [{"start_time": "25:00", "end_time": "None", "detail": []}]}, r"attempts\[0\]\.start_time is '25:00'"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, change: dict[str, object], named: str) -> None:
    good = entry("a", DAY + "01:00:00")
    with pytest.raises(ConfigError, match=named):
        read_philly(write(tmp_path, [good, entry("b", DAY + "01:00:00") | change]))


def test_a_file_that_is_no_trace_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not a JSON list"):
        read_philly(write(tmp_path, {"jobs": []}))
    with pytest.raises(ConfigError, match="cannot be read"):
        read_philly(tmp_path / "nothing")


TRACED = JOBS.replace(
    "[[jobs]]",
    """[trace]
file = "cluster_job_log"
device_scale = 2

[[jobs]]
name = "large"
model = "Qwen3-8B"
steps = 1
rollout = { devices = 16, seconds = 300 }
train = { devices = 16, seconds = 60 }

[[jobs]]""",
    1,
)


def traced(tmp_path: Path, days: float | None = None) -> JobScenario:
    """Jobs that are too short, that go to the large kind, and to the small one; the last comes three days later."""
    short = entry("a", DAY + "01:00:00", (DAY + "01:01:00", DAY + "01:02:00", 8))
    large = entry("b", DAY + "02:00:00", (DAY + "02:00:00", DAY + "12:00:00", 13))
    small = entry("c", DAY + "03:00:00", (DAY + "03:00:00", DAY + "13:00:00", 1))
    later = entry("d", "2017-10-10 03:00:00", ("2017-10-10 03:00:00", "2017-10-10 13:00:00", 1))
    write(tmp_path, [later, short, large, small])
    scenario = parse_scenario(TRACED, "my.toml", tmp_path)
    assert isinstance(scenario, JobScenario)
    return lasting(scenario.model_copy(update={"days": days}))


def test_jobs_of_a_scenario_come_and_last_like_those_of_the_trace(tmp_path: Path) -> None:
    scenario = traced(tmp_path)
    jobs = jobs_of(scenario, scenario.systems[0], 0, False)
    assert [(job.job_id, job.kind, job.arrival_s) for job in jobs] == [
        ("b", "large", 0.0), ("c", "small", 3600.0), ("d", "small", 3 * 86_400 + 3600.0),
    ]  # fmt: skip
    assert all(job.alone_s == pytest.approx(36_000, rel=0.01) for job in jobs)
    stale = jobs_of(scenario, JobSystem(name="stale", staleness=1), 0, False)
    assert [job.steps for job in stale] == [job.steps for job in jobs], "the same work under every system"


def test_days_say_how_much_of_the_trace_counts(tmp_path: Path) -> None:
    scenario = traced(tmp_path, days=1.0)
    assert [job.job_id for job in jobs_of(scenario, scenario.systems[0], 0, False)] == ["b", "c"]
    with pytest.raises(ConfigError, match="none of the 4 jobs"):
        parse_scenario(TRACED.replace("device_scale = 2", "min_s = 1e6"), "my.toml", tmp_path)


def test_a_trace_that_is_not_there_is_told_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"trace\.file = .*cannot be read.*\(line 9\)"):
        parse_scenario(TRACED, "my.toml", tmp_path)
