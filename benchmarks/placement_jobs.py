"""Jobs like those of PlexRL's evaluation (arXiv 2605.20863, as told in MECHANISMS.md), by seed.

From the paper: 7B, 30B-A3B and 235B; a training pool is idle 80, 71 and 81 % of a step when isolated; and how the devices are split
(see `plait.simulation.plexrl_jobs`). Assumed, since the paper leaves it open: the devices of each size; periods; lengths of jobs;
shares of sizes; a switch of 2 s (Weave), plus 16 bytes a parameter out and in at 20 GB/s for each device. Rollout fills the rest of
the step (synchronous: the two phases take turns), or, in asynchronous jobs, 95 % of it, beside the training of the step before.
"""

import math
import random
from collections.abc import Sequence

import msgspec

from plait.placement.job import Job, Pool, Role
from plait.placement.job_profile import JobProfile, Phase
from plait.placement.resource_view import Bytes, Node

GB = 10**9
DEVICES_PER_NODE, NODES_PER_GROUP = 8, 32
NODE_MEMORY = Bytes(device=80 * GB, host=2000 * GB, disk=8000 * GB)
KINDS_PER_SIZE = 8
TRAIN_BYTES, LINK_BYTES_PER_S, SWITCH_S = 16, 20 * GB, 2.0
MEDIAN_S, SIGMA = 8 * 3600.0, 0.6


class Size(msgspec.Struct, frozen=True):
    name: str
    parameters: float
    rollout_devices: int
    train_devices: int
    period_s: float
    train_idle: float
    share: float

    def times(self, factor: int) -> "Size":
        """On so many times the devices."""
        rollout, train = self.rollout_devices * factor, self.train_devices * factor
        return msgspec.structs.replace(self, rollout_devices=rollout, train_devices=train)


SIZES = (
    Size("7B", 7e9, 8, 16, 120, 0.80, 0.5),
    Size("30B", 30e9, 16, 32, 240, 0.71, 0.35),
    Size("235B", 235e9, 32, 128, 480, 0.81, 0.15),
)


class Arrival(msgspec.Struct, frozen=True):
    at_s: float
    job: Job
    profile: JobProfile
    """What its trace will tell."""


def nodes_of(num_devices: int) -> list[Node]:
    numbers = range(num_devices // DEVICES_PER_NODE)
    return [Node(f"n{number:04}", f"g{number // NODES_PER_GROUP:02}", DEVICES_PER_NODE, NODE_MEMORY) for number in numbers]


def arrivals(num_jobs: int, gap_s: float, seed: int, max_devices: int, asynchronous: float, pool_scale: int = 1) -> list[Arrival]:
    """In order of time, on average one per `gap_s`; `asynchronous`: share of the kinds that train beside the next rollout."""
    rng = random.Random(seed)
    scaled = [size.times(pool_scale) for size in SIZES]
    sizes = [size for size in scaled if size.rollout_devices + size.train_devices <= max_devices]
    kinds = [(size, number, _profile(size, rng, rng.random() < asynchronous)) for size in sizes for number in range(KINDS_PER_SIZE)]
    weights = [size.share for size, _, _ in kinds]
    found: list[Arrival] = []
    at_s = 0.0
    for index, (size, number, profile) in enumerate(rng.choices(kinds, weights, k=num_jobs)):
        length_s = MEDIAN_S * math.exp(rng.gauss(0, SIGMA))
        job = Job(f"job-{index:04}", f"{size.name}-{number}", pools_of(size), expected_s=length_s)
        found.append(Arrival(at_s, job, profile))
        at_s += rng.expovariate(1 / gap_s)
    return found


def pools_of(size: Size) -> tuple[Pool, ...]:
    train_bytes = int(size.parameters * TRAIN_BYTES / size.train_devices)
    rollout_bytes = int(size.parameters * 2 / size.rollout_devices) + 20 * GB
    return (
        Pool(
            (Role.ROLLOUT,),
            size.rollout_devices,
            rollout_bytes,
            SWITCH_S + 2 * size.parameters * 2 / size.rollout_devices / LINK_BYTES_PER_S,
        ),
        Pool((Role.TRAIN,), size.train_devices, train_bytes, SWITCH_S + 2 * train_bytes / LINK_BYTES_PER_S),
    )


def _profile(size: Size, rng: random.Random, is_asynchronous: bool) -> JobProfile:
    period_s = size.period_s * math.exp(rng.gauss(0, 0.3))
    train_s = period_s * (1 - size.train_idle) * rng.uniform(0.9, 1.1)
    if is_asynchronous:
        phases = (Phase(Role.ROLLOUT, 0.0, 0.95 * period_s), Phase(Role.TRAIN, 0.0, train_s))
    else:
        rollout_s = period_s - train_s - 0.01 * period_s
        phases = (Phase(Role.ROLLOUT, 0.0, rollout_s), Phase(Role.TRAIN, rollout_s, train_s))
    return JobProfile(period_s, phases)


def train_idle(stream: Sequence[Arrival]) -> dict[str, float]:
    """Idle share of the training pools when isolated, by size: the mean over the jobs."""
    by_size: dict[str, list[float]] = {}
    for arrival in stream:
        by_size.setdefault(arrival.job.kind.split("-")[0], []).append(1 - arrival.profile.duty([Role.TRAIN]))
    return {size: sum(idle) / len(idle) for size, idle in sorted(by_size.items())}
