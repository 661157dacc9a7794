"""Reads `cluster_job_log` of the Philly traces (github.com/msr-fiddle/philly-traces; Jeon et al., ATC 2019, arXiv 1901.05758).

A JSON list of jobs, each with its attempts: where it ran, from when to when. Times are local, to the second, such as
"2017-10-07 01:12:09". A job may have no attempts; an attempt may lack its start, or its end (still running at the snapshot).
"""

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import msgspec

from plait.types.errors import ConfigError

TIME_FORMAT = "%Y-%m-%d %H:%M:%S"
NONE = (None, "None", "")
"""How a time that was not recorded is written."""


class Detail(msgspec.Struct, frozen=True):
    """Of an attempt: a server, and the GPUs there."""

    ip: str
    gpus: tuple[str, ...]


class Attempt(msgspec.Struct, frozen=True):
    detail: tuple[Detail, ...]
    start_time: str | None = None
    end_time: str | None = None

    @property
    def num_devices(self) -> int:
        return sum(len(detail.gpus) for detail in self.detail)


class Entry(msgspec.Struct, frozen=True):
    """As it is in the file."""

    jobid: str
    attempts: tuple[Attempt, ...]
    submitted_time: str | None
    status: str = ""
    vc: str = ""
    user: str = ""


class PhillyAttempt(msgspec.Struct, frozen=True):
    """Seconds since the first submission of the trace. `end_s`: None if it still ran at the snapshot."""

    num_devices: int
    start_s: float
    end_s: float | None


class PhillyJob(msgspec.Struct, frozen=True):
    """Attempts whose start was recorded, in the order of the file."""

    job_id: str
    user: str
    virtual_cluster: str
    status: str
    submitted_s: float
    attempts: tuple[PhillyAttempt, ...]

    @property
    def num_devices(self) -> int:
        """Most that an attempt had; 0 if it never ran."""
        return max((attempt.num_devices for attempt in self.attempts), default=0)

    @property
    def run_s(self) -> float:
        """Of all attempts that have ended."""
        return sum(attempt.end_s - attempt.start_s for attempt in self.attempts if attempt.end_s is not None)


def read_philly(path: Path) -> tuple[PhillyJob, ...]:
    """In order of submission. ConfigError naming the file, the entry and the field that is wrong."""
    try:
        raw = msgspec.json.decode(path.read_bytes(), type=list[msgspec.Raw])
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error}.", "Give the path of cluster_job_log.") from error
    except msgspec.DecodeError as error:
        raise ConfigError(f"{path} is not a JSON list: {error}.", "Give cluster_job_log of the Philly traces.") from error
    entries = [_entry(path, index, part) for index, part in enumerate(raw)]
    return _jobs(path, entries)


def _entry(path: Path, index: int, part: msgspec.Raw) -> Entry:
    try:
        return msgspec.json.decode(part, type=Entry)
    except msgspec.DecodeError as error:
        raise _wrong(path, index, "", str(error)) from error


def _jobs(path: Path, entries: Sequence[Entry]) -> tuple[PhillyJob, ...]:
    times = [_time(path, index, entry, "submitted_time", entry.submitted_time) for index, entry in enumerate(entries)]
    for index, time in enumerate(times):
        if time is None:
            raise _wrong(path, index, entries[index].jobid, "submitted_time is missing")
    first = min((time for time in times if time is not None), default=0.0)
    jobs = [
        _job(path, index, entry, time - first, first)
        for index, (entry, time) in enumerate(zip(entries, times, strict=True))
        if time is not None
    ]
    return tuple(sorted(jobs, key=lambda job: (job.submitted_s, job.job_id)))


def _job(path: Path, index: int, entry: Entry, submitted_s: float, first: float) -> PhillyJob:
    attempts: list[PhillyAttempt] = []
    for number, attempt in enumerate(entry.attempts):
        field = f"attempts[{number}]"
        start = _time(path, index, entry, f"{field}.start_time", attempt.start_time)
        end = _time(path, index, entry, f"{field}.end_time", attempt.end_time)
        if start is None:
            continue
        if end is not None and end < start:
            raise _wrong(path, index, entry.jobid, f"{field}.end_time {attempt.end_time} is before its start {attempt.start_time}")
        attempts.append(PhillyAttempt(attempt.num_devices, start - first, None if end is None else end - first))
    return PhillyJob(entry.jobid, entry.user, entry.vc, entry.status, submitted_s, tuple(attempts))


def _time(path: Path, index: int, entry: Entry, field: str, text: str | None) -> float | None:
    """Seconds on the trace's own clock."""
    if text in NONE:
        return None
    try:
        return (datetime.strptime(str(text), TIME_FORMAT) - datetime(1970, 1, 1)).total_seconds()
    except ValueError as error:
        raise _wrong(path, index, entry.jobid, f"{field} is {text!r}, not a time such as 2017-10-07 01:12:09") from error


def _wrong(path: Path, index: int, job_id: str, problem: str) -> ConfigError:
    name = f" (jobid {job_id})" if job_id else ""
    return ConfigError(f"{path}: entry {index}{name}: {problem}.", "Mend the entry, or take the file as it was published.")
