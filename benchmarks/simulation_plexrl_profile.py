"""What each job of `benchmarks.plexrl` takes alone: the costs of its simulation.

- The job has a worker group to itself, with room for one of its two deployments, so that every call brings its own. Calls are told
  by the service's own trace, where a switch is no time of the job's; moves, by the service's own record of setups.
- Nothing is taken from a run in which jobs share anything.
"""

import asyncio
import math
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, median, pstdev

import msgspec

from benchmarks.plexrl_jobs import Job, make_models
from benchmarks.plexrl_run import NUM_WARM_STEPS, Outcome, run_system
from benchmarks.plexrl_systems import ONE_GROUP, ROLES, System
from plait.cluster.messages import ROLLOUT, TRAIN
from plait.placement.demand_trace import FunctionRecord
from plait.placement.job import Role
from plait.simulation.job_shape import JobShape, PartShape

FITS = System("alone in a group, all fits", ONE_GROUP, is_alone=True, is_limited=False)
SWITCHES = System("alone in a group, one deployment fits", ONE_GROUP, is_alone=True)


class Spread(msgspec.Struct, frozen=True):
    """Lognormal: `sigma` of the natural logarithm, `median_s` with which the mean is that of what was measured."""

    median_s: float
    sigma: float


class AloneJob(msgspec.Struct, frozen=True):
    """By role: calls of a step, what follows until the other part begins, and of the deployment its bytes and its moves to and from
    the device."""

    num_steps: int
    call_s: dict[str, Spread]
    after_s: dict[str, Spread]
    num_bytes: dict[str, int]
    load_s: dict[str, float]
    offload_s: dict[str, float]


Profiles = dict[str, dict[str, AloneJob]]
"""By scenario and job."""


def measure(jobs: Sequence[Job], measured_s: float) -> dict[str, AloneJob]:
    found = {}
    with tempfile.TemporaryDirectory(prefix="plait-bench-") as place:
        models = Path(place)
        make_models(models, jobs)
        for job in jobs:
            fits = _run(FITS, job, {}, 1.0, models / f"{job.name}-fits")
            switches = _run(SWITCHES, job, fits.sizes, measured_s, models / f"{job.name}-switches")
            found[job.name] = alone(job.name, switches)
    return found


def _run(system: System, job: Job, sizes: dict[str, int], measured_s: float, folder: Path) -> Outcome:
    folder.mkdir()
    return asyncio.run(run_system(system, [job], sizes, measured_s, folder))[0]


def alone(job: str, outcome: Outcome) -> AloneJob:
    steps = steps_of(outcome.records[job])[NUM_WARM_STEPS:]
    rollouts, trainings = [rollout for rollout, _ in steps], [train for _, train in steps]
    names = {role: f"{job}/{role}" for role in ROLES}
    return AloneJob(
        len(steps),
        {ROLLOUT: spread([end - start for start, end in rollouts]), TRAIN: spread([end - start for start, end in trainings])},
        {ROLLOUT: spread(_gaps(rollouts, trainings)), TRAIN: spread(_gaps(trainings, rollouts[1:]))},
        {role: outcome.sizes[name] for role, name in names.items()},
        {role: median(outcome.loads_s[name]) for role, name in names.items()},
        {role: median(outcome.offloads_s[name]) for role, name in names.items()},
    )


Window = tuple[float, float]


def steps_of(records: Sequence[FunctionRecord]) -> list[tuple[Window, Window]]:
    """(Rollout, training) of each whole step, from the start of the first call of each to the end of the last."""
    parts: list[tuple[Role, Window]] = []
    for record in records:
        if record.function not in ("sample", "update"):
            continue
        if parts and parts[-1][0] is record.role:
            parts[-1] = (record.role, (parts[-1][1][0], record.end_s))
        else:
            parts.append((record.role, (record.start_s, record.end_s)))
    first = next(index for index, (role, _) in enumerate(parts) if role is Role.ROLLOUT)
    return [(rollout, train) for (_, rollout), (_, train) in zip(parts[first::2], parts[first + 1 :: 2], strict=False)]


def _gaps(before: Sequence[Window], after: Sequence[Window]) -> list[float]:
    return [start - end for (_, end), (start, _) in zip(before, after, strict=False)]


def spread(values_s: Sequence[float]) -> Spread:
    mean_s = max(fmean(values_s), 1e-6)
    sigma = math.sqrt(math.log1p((pstdev(values_s) / mean_s) ** 2))
    return Spread(mean_s / math.exp(sigma**2 / 2), sigma)


def shape_of(name: str, job: AloneJob) -> JobShape:
    """Without an end."""
    rollout, train = (
        PartShape(
            1, job.call_s[role].median_s, jitter=job.call_s[role].sigma, bytes_per_device=job.num_bytes[role],
            after_s=job.after_s[role].median_s, after_jitter=job.after_s[role].sigma,
        )
        for role in ROLES
    )  # fmt: skip
    return JobShape(name, name, "tiny", 0.0, 1_000_000, rollout, train)
