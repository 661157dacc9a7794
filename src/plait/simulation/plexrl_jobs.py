"""Jobs like those of PlexRL's evaluation (arXiv 2605.20863), by seed.

From the paper: 7B, 30B-A3B and 235B models, over three months; training devices that idle 80, 71 and 81 % of a step when a job has
them alone; two jobs on one training group take 31.4, 30.1 and 37.6 % fewer device-hours a step. Two jobs save at most half of what
trains, so 63, 60 and 75 % of a job's devices or more do: SIZES has the next powers of two, 2/3, 2/3 and 4/5.
Assumed, since the paper leaves it open: devices of each size; periods; lengths of jobs; shares of sizes; jitter of 10 %; a rollout
of eight turns, a tenth of its time for tools; rollouts that grow by 15 % over a job.
"""

import math
import random
from collections.abc import Sequence

import msgspec

from plait.simulation.job_shape import JobShape, PartShape

GB = 10**9
TRAIN_BYTES = 16
"""Of a parameter in training: bfloat16 weight and gradient, float32 weight and two moments."""
CACHE_BYTES_PER_DEVICE = 20 * GB


class Size(msgspec.Struct, frozen=True):
    """Jobs of one model. `bubble`: idle share of the training devices."""

    name: str
    model: str
    parameters: float
    rollout_devices: int
    train_devices: int
    period_s: float
    bubble: float
    share: float

    @property
    def num_devices(self) -> int:
        return self.rollout_devices + self.train_devices


SIZES = (
    Size("7B", "Qwen3-8B", 7e9, 8, 16, 120.0, 0.80, 0.50),
    Size("30B-A3B", "Qwen3-30B-A3B", 30e9, 16, 32, 240.0, 0.71, 0.35),
    Size("235B-A22B", "Qwen3-235B-A22B", 235e9, 32, 128, 480.0, 0.81, 0.15),
)


class PlexrlWorkload(msgspec.Struct, frozen=True):
    """`gap_s`: mean time between two arrivals (exponential); `median_job_s`, `job_sigma`: of a job's time alone (lognormal)."""

    num_jobs: int
    gap_s: float
    staleness: int = 1
    sizes: tuple[Size, ...] = SIZES
    median_job_s: float = 8 * 3600.0
    job_sigma: float = 0.6
    kinds_per_size: int = 8
    kind_sigma: float = 0.3
    """Of the periods of the kinds of jobs of one size."""
    turns: int = 8
    tool_share: float = 0.1
    """Of a rollout's time."""
    train_calls: int = 4
    jitter: float = 0.1
    drift: float = 0.15


class Kind(msgspec.Struct, frozen=True):
    """Jobs of alike demand. `spread`: of its period, in standard deviations; `busy`: its training by that of the size."""

    name: str
    size: Size
    spread: float
    busy: float


def plexrl_jobs(workload: PlexrlWorkload, seed: int = 0) -> tuple[JobShape, ...]:
    """In order of arrival."""
    rng = random.Random(f"{seed}/plexrl")
    kinds = [kind_of(size, number, seed) for size in workload.sizes for number in range(workload.kinds_per_size)]
    jobs: list[JobShape] = []
    arrival_s = 0.0
    for index, kind in enumerate(rng.choices(kinds, [kind.size.share for kind in kinds], k=workload.num_jobs)):
        alone_s = workload.median_job_s * math.exp(rng.gauss(0, workload.job_sigma))
        jobs.append(job_of(workload, kind, f"job-{index:05}", arrival_s, alone_s))
        arrival_s += rng.expovariate(1 / workload.gap_s)
    return tuple(jobs)


def kind_of(size: Size, number: int, seed: int) -> Kind:
    """One of the kinds of a size; the same for the same number and seed."""
    name = f"{size.name}-{number}"
    rng = random.Random(f"{seed}/{name}")
    return Kind(name, size, rng.gauss(0, 1), rng.uniform(0.9, 1.1))


def job_of(workload: PlexrlWorkload, kind: Kind, job_id: str, arrival_s: float, alone_s: float) -> JobShape:
    """`alone_s`: about how long it takes when alone."""
    period_s = kind.size.period_s * math.exp(workload.kind_sigma * kind.spread)
    rollout, train = _parts(workload, kind.size, period_s, kind.busy)
    steps = max(1, round(alone_s / period_s))
    return JobShape(job_id, kind.name, kind.size.model, arrival_s, steps, rollout, train, workload.staleness)


def _parts(workload: PlexrlWorkload, size: Size, period_s: float, busy: float) -> tuple[PartShape, PartShape]:
    """A synchronous job's rollout fills what training leaves of the period; an asynchronous one's, all of it."""
    usual = (1 + workload.drift / 2) * math.exp(workload.jitter**2 / 2)
    train_s = period_s * (1 - size.bubble) * busy
    rollout_s = period_s if workload.staleness else period_s - train_s
    delay_s = workload.tool_share * rollout_s / max(1, workload.turns - 1) if workload.turns > 1 else 0.0
    call_s = rollout_s - delay_s * (workload.turns - 1)
    rollout_bytes = int(size.parameters * 2 / size.rollout_devices) + CACHE_BYTES_PER_DEVICE
    jitter, drift = workload.jitter, workload.drift
    rollout = PartShape(size.rollout_devices, call_s / usual, workload.turns, delay_s, jitter, drift, rollout_bytes)
    train_bytes = int(size.parameters * TRAIN_BYTES / size.train_devices)
    unjittered = train_s / math.exp(jitter**2 / 2)
    return rollout, PartShape(size.train_devices, unjittered, workload.train_calls, 0.0, jitter, 0.0, train_bytes)


def synchronous(jobs: Sequence[JobShape]) -> tuple[JobShape, ...]:
    """The same work, each step after the one before it."""
    return tuple(msgspec.structs.replace(job, staleness=0) for job in jobs)


def colocated(jobs: Sequence[JobShape], rollout_scaling: float = 0.5) -> tuple[JobShape, ...]:
    """The same jobs, both parts on all of a job's devices, in turns.

    Training takes as many times less as it has more devices; a rollout is bound by its longest answers, and takes that many times
    less to the power of `rollout_scaling` (1: all of it, 0: nothing).
    """
    return tuple(_colocated(job, rollout_scaling) for job in jobs)


def _colocated(job: JobShape, rollout_scaling: float) -> JobShape:
    total = job.rollout.num_devices + job.train.num_devices
    more = total / job.rollout.num_devices
    rollout = msgspec.structs.replace(
        job.rollout,
        num_devices=total,
        call_s=job.rollout.call_s / more**rollout_scaling,
        bytes_per_device=_spread(job.rollout, total),
    )
    train = msgspec.structs.replace(
        job.train,
        num_devices=total,
        call_s=job.train.call_s * job.train.num_devices / total,
        bytes_per_device=_spread(job.train, total),
    )
    fill = job.fill * more ** (rollout_scaling - 1)
    return msgspec.structs.replace(job, rollout=rollout, train=train, staleness=0, is_colocated=True, fill=fill)


def _spread(part: PartShape, num_devices: int) -> int:
    return part.bytes_per_device * part.num_devices // num_devices
