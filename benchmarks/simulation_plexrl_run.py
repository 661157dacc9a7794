"""The jobs of `benchmarks.plexrl` in simulated time: on each system's workers, with what each job takes alone."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

import simpy

from benchmarks.plexrl_run import NUM_WARM_STEPS
from benchmarks.plexrl_systems import ROLES, UNLIMITED_BYTES, System, budget
from benchmarks.simulation_plexrl_profile import AloneJob, shape_of
from plait.cluster.messages import TRAIN
from plait.placement.job import Role
from plait.residency.rates import Route, TransferRates
from plait.residency.tier import Tier
from plait.scheduling.orders import ORDERS
from plait.simulation.group_meter import ClusterMeter, GroupMeter
from plait.simulation.group_residency import GroupResidency
from plait.simulation.groups import SimulatedGroup
from plait.simulation.jobs import SimulatedJob

SIMULATED_S = 300.0
"""After the warm steps; the real clock runs for 15 s."""
OWN = System("own workers", {role: f"{role}-{{job}}" for role in ROLES}, is_limited=False)
COLOCATED = System("colocated", dict.fromkeys(ROLES, "{job}"), is_limited=False)


class AloneRates(TransferRates):
    """As jobs move alone: each load takes a time and a rate, and so does each deployment that leaves with what it has changed."""

    def __init__(self, jobs: Sequence[AloneJob]) -> None:
        super().__init__()
        self._load, self._offload = (
            line([(job.num_bytes[role], times(job)[role]) for job in jobs for role in roles])
            for times, roles in ((lambda job: job.load_s, ROLES), (lambda job: job.offload_s, (TRAIN,)))
        )

    def estimate_s(self, route: Route, num_bytes: int) -> float:
        if not num_bytes:
            return 0.0
        fixed_s, byte_s = self._load if route[1] is Tier.DEVICE else self._offload
        return fixed_s + byte_s * num_bytes


def line(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Least squares, (value at 0, slope), neither below 0."""
    mean_x, mean_y = fmean(x for x, _ in points), fmean(y for _, y in points)
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / spread if spread else 0.0
    if slope <= 0:
        return mean_y, 0.0
    if mean_y - slope * mean_x < 0:
        return 0.0, sum(x * y for x, y in points) / sum(x * x for x, _ in points)
    return mean_y - slope * mean_x, slope


def simulate_system(system: System, jobs: Mapping[str, AloneJob], seed: int = 0) -> dict[str, float]:
    """Mean seconds of a step, by job."""
    if system.is_alone:
        return {name: _simulate(OWN, {name: job}, seed)[name] for name, job in jobs.items()}
    return _simulate(system, jobs, seed)


def _simulate(system: System, jobs: Mapping[str, AloneJob], seed: int) -> dict[str, float]:
    if system.groups is None:
        system = COLOCATED if system.is_colocated else OWN
    env, clock = simpy.Environment(), _Clock(jobs)
    groups = _make_groups(env, system, jobs)
    for name, alone in jobs.items():
        job = SimulatedJob(env, shape_of(name, alone), str(seed), lambda job: clock.step(job, env.now), lambda job: None)
        for role in Role:
            groups[system.group_of(name, role.value)].join(job.deployment(role), job.bytes_of(role), Tier.HOST)
        job.start({role: groups[system.group_of(name, role.value)] for role in Role}, 0.0)
    while clock.since_s is None or env.now < clock.since_s + SIMULATED_S:
        env.step()
    return clock.step_times_s()


def _make_groups(env: simpy.Environment, system: System, jobs: Mapping[str, AloneJob]) -> dict[str, SimulatedGroup]:
    rates, meter, found = AloneRates(list(jobs.values())), ClusterMeter(), {}
    for group, members in system.members(list(jobs)).items():
        sizes = [jobs[name].num_bytes[role] for name, role in (member.rsplit("/", 1) for member in members)]
        residency = GroupResidency(budget(sizes) if system.is_limited else UNLIMITED_BYTES, rates)
        order = ORDERS[system.order.replace("_", "-")]()
        found[group] = SimulatedGroup(env, group, residency, order, GroupMeter(meter, {"all": 1}, 0.0))
    return found


class _Clock:
    """Runs once all jobs are warm, as that of the real benchmark."""

    def __init__(self, jobs: Mapping[str, Any]) -> None:
        self.since_s: float | None = None
        self._num_steps = dict.fromkeys(jobs, 0)
        self._ends_s: dict[str, list[float]] = {name: [] for name in jobs}

    def step(self, job: SimulatedJob, now_s: float) -> None:
        name = job.shape.job_id
        self._num_steps[name] += 1
        if self.since_s is not None:
            self._ends_s[name].append(now_s)
        elif min(self._num_steps.values()) >= NUM_WARM_STEPS:
            self.since_s = now_s

    def step_times_s(self) -> dict[str, float]:
        return {name: (ends_s[-1] - ends_s[0]) / (len(ends_s) - 1) for name, ends_s in self._ends_s.items()}
