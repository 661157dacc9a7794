"""Scenarios of jobs that last: as many jobs as fill the cluster for some days."""

import math

from plait.simulation.check_scenario import MOST_JOBS
from plait.simulation.job_scenario import JobScenario, JobSettings, JobSystem
from plait.simulation.job_workload import DAY_S, shape_of
from plait.types.errors import ConfigError


def lasting(scenario: JobScenario) -> JobScenario:
    """The scenario without `days`, and with as many jobs, or as much of its trace, as it asks for; itself if it asks for none."""
    if scenario.days is None:
        return scenario
    if scenario.trace is not None:
        trace = scenario.trace.model_copy(update={"days": scenario.days})
        return scenario.model_copy(update={"trace": trace, "days": None})
    wanted_s = scenario.days * DAY_S
    times = wanted_s * scenario.cluster.devices / sum(kind.count * mean_device_s(kind) for kind in scenario.jobs)
    count = times * sum(kind.count for kind in scenario.jobs)
    if count > MOST_JOBS:
        raise ConfigError(f"days = {scenario.days:g}: {count:,.0f} jobs, of {MOST_JOBS:,} at most.", "Give fewer days.")
    jobs = tuple(_spread(kind, max(1, round(kind.count * times)), wanted_s) for kind in scenario.jobs)
    return scenario.model_copy(update={"jobs": jobs, "days": None})


def mean_device_s(kind: JobSettings) -> float:
    """Of one job of a kind, on average: its devices times how long it takes when it has them alone."""
    steps = kind.steps * math.exp(kind.steps_sigma**2 / 2)
    factor = math.exp(kind.seconds_sigma**2 / 2)
    shape = shape_of(kind, JobSystem(name="any"), kind.name, 0.0, max(1, round(steps)), factor)
    return shape.num_devices * shape.alone_s


def _spread(kind: JobSettings, count: int, wanted_s: float) -> JobSettings:
    return kind.model_copy(update={"count": count, "arrival_s": 0.0, "arrival_every_s": wanted_s / count})
