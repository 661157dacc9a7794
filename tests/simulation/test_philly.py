"""Reading Philly traces, and jobs that arrive like theirs."""

import json
from pathlib import Path
from typing import Any

import pytest

from plait.simulation.philly import read_philly
from plait.simulation.philly_jobs import jobs_of_philly
from plait.simulation.plexrl_jobs import PlexrlWorkload
from plait.types.errors import ConfigError


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


def test_rl_jobs_arrive_and_last_like_those_of_the_trace(tmp_path: Path) -> None:
    short = entry("a", DAY + "01:00:00", (DAY + "01:01:00", DAY + "01:02:00", 8))
    large = entry("b", DAY + "02:00:00", (DAY + "02:00:00", DAY + "12:00:00", 32))
    small = entry("c", DAY + "03:00:00", (DAY + "03:00:00", DAY + "13:00:00", 1))
    jobs = jobs_of_philly(read_philly(write(tmp_path, [short, large, small])), PlexrlWorkload(0, 1.0))
    assert [(job.job_id, job.arrival_s, job.num_devices) for job in jobs] == [("b", 3600.0, 160), ("c", 7200.0, 24)]
    assert all(job.alone_s == pytest.approx(36_000, rel=0.05) for job in jobs)
