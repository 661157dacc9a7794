"""Jobs of a scenario that come, and last, like those of a Philly trace."""

import math
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import msgspec

from plait.simulation.job_scenario import JobScenario, JobSettings, TraceSettings
from plait.simulation.philly import PhillyJob, read_philly
from plait.types.errors import ConfigError

DAY_S = 86_400.0


@cache
def traced_jobs(trace: TraceSettings) -> tuple[PhillyJob, ...]:
    """Those that count, in order of submission, the first one at 0. ConfigError if the file cannot be read, or none is left."""
    jobs = read_philly(Path(trace.file))
    first_s = trace.from_day * DAY_S
    end_s = math.inf if trace.days is None else first_s + trace.days * DAY_S
    kept = [
        job for job in jobs if job.num_devices and job.run_s >= trace.min_s and first_s <= job.submitted_s < end_s
    ]  # fmt: skip
    if not kept:
        raise ConfigError(
            f"none of the {len(jobs):,} jobs of {trace.file} ran for {trace.min_s:g} s or more on the days that count.",
            "Change trace.min_s, trace.from_day or days.",
        )
    return tuple(msgspec.structs.replace(job, submitted_s=job.submitted_s - kept[0].submitted_s) for job in kept)


def nearest_kind(kinds: Sequence[JobSettings], num_devices: float) -> JobSettings:
    """By the ratio of devices."""
    return min(kinds, key=lambda kind: abs(math.log((kind.rollout.devices + kind.train.devices) / num_devices)))


def trace_problems(scenario: JobScenario) -> Iterator[tuple[tuple[str | int, ...], str]]:
    if scenario.trace is None:
        return
    try:
        traced_jobs(scenario.trace)
    except ConfigError as error:
        yield ("trace", "file"), f'trace.file = "{scenario.trace.file}": {error}'
