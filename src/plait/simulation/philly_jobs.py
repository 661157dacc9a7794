"""RL jobs that arrive, and last, like the jobs of a Philly trace. Sizes, periods and bubbles are those of `plexrl_jobs`."""

import math
import random
from collections.abc import Iterable

from plait.simulation.job_shape import JobShape
from plait.simulation.philly import PhillyJob
from plait.simulation.plexrl_jobs import PlexrlWorkload, Size, job_of, kind_of

MIN_S = 1800.0
"""Shorter jobs are left out: attempts that failed at once, debugging."""


def jobs_of_philly(
    trace: Iterable[PhillyJob], workload: PlexrlWorkload, seed: int = 0, device_scale: float = 8.0
) -> tuple[JobShape, ...]:
    """The trace's arrivals, run times and numbers of devices, times `device_scale`, for `workload`'s calls.

    A job becomes one of the size that is nearest in devices, on as many as that has. The workload's own arrivals and lengths do
    not count.
    """
    rng = random.Random(f"{seed}/philly")
    jobs: list[JobShape] = []
    for entry in trace:
        if entry.run_s < MIN_S or not entry.num_devices:
            continue
        size = _nearest(workload.sizes, entry.num_devices * device_scale)
        kind = kind_of(size, rng.randrange(workload.kinds_per_size), seed)
        jobs.append(job_of(workload, kind, entry.job_id, entry.submitted_s, entry.run_s))
    return tuple(jobs)


def _nearest(sizes: Iterable[Size], num_devices: float) -> Size:
    return min(sizes, key=lambda size: abs(math.log(size.num_devices / num_devices)))
