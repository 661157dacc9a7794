"""The smallest cluster on which jobs keep their bounds, found by simulating clusters of many sizes."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from plait.simulation.hardware import accelerator
from plait.simulation.job_results import OnTime, simulate_system
from plait.simulation.job_room import devices_per_node
from plait.simulation.job_scenario import JobScenario, JobSystem
from plait.simulation.job_workload import jobs_of
from plait.simulation.lasting import lasting
from plait.simulation.results import SystemResult
from plait.simulation.smallest import smallest_enough

OnTry = Callable[[str, int, float], None]
"""(System, devices, share of the steps that are done there): once in a simulated hour"""


class Wish(msgspec.Struct, frozen=True):
    """`share` of the jobs have to end within `slo` times their time alone, counted from their arrival: waiting counts.

    Without `slo`, within each job's own.
    """

    slo: float | None = None
    share: float = 1.0


class Deciding(msgspec.Struct, frozen=True):
    """The job that is the last that has to keep its bound."""

    slowdown: float
    bound: float

    @property
    def is_kept(self) -> bool:
        return self.slowdown <= self.bound


class Plan(msgspec.Struct, frozen=True):
    """`num_devices` is None where not even a cluster that holds all jobs at once is enough."""

    system: str
    num_devices: int | None
    worst_slowdown: float | None
    """From arrival to end, over the time alone: of the job that decides."""
    late: int
    """Jobs that take longer than the wish allows."""
    makespan_s: float | None
    device_hours: float | None
    """Of the whole cluster, until the last job's end."""
    cost: float | None
    cluster_utilisation: float | None
    tried: dict[int, float | None]
    """Devices -> slowdown of the job that decides there."""


def on_accelerator(scenario: JobScenario, name: str) -> JobScenario:
    """The same jobs on other devices: rollouts go with the memory's rate, training with the arithmetic."""
    old, new = accelerator(scenario.cluster.accelerator), accelerator(name, "--accelerator")
    rollout, train = old.memory_bytes_per_s / new.memory_bytes_per_s, old.flops / new.flops
    jobs = tuple(
        job.model_copy(
            update={
                "rollout": job.rollout.model_copy(update={"seconds": job.rollout.seconds * rollout}),
                "train": job.train.model_copy(update={"seconds": job.train.seconds * train}),
            }
        )
        for job in scenario.jobs
    )
    cluster = scenario.cluster.model_copy(update={"accelerator": name, "devices_per_node": 0})
    return scenario.model_copy(update={"cluster": cluster, "jobs": jobs})


def plan_system(
    scenario: JobScenario, system: JobSystem, wish: Wish, seed: int, is_quick: bool = False, on_try: OnTry | None = None
) -> Plan:
    """No node fails, and jobs have as much time as they take, whatever the scenario says."""
    scenario = lasting(scenario)
    per_node = devices_per_node(scenario)
    jobs = jobs_of(scenario, system, seed, is_quick)
    bounds = {job.job_id: job.slo if wish.slo is None else wish.slo for job in jobs}
    low = max(-(-job.num_devices // per_node) for job in jobs)
    high = max(low, sum(-(-part.num_devices // per_node) for job in jobs for part in job.parts.values()))
    tried: dict[int, SystemResult] = {}

    def on_time(devices: int) -> OnTime | None:
        return None if on_try is None else lambda name, _, share: on_try(name, devices, share)

    def is_enough(num_nodes: int) -> bool:
        devices = num_nodes * per_node
        cluster = scenario.cluster.model_copy(update={"devices": devices})
        changed: Any = scenario.model_copy(update={"cluster": cluster, "failures": (), "until_s": None})
        tried[devices] = simulate_system(changed, system, seed, is_quick, on_time(devices))
        found = deciding(tried[devices], wish.share, bounds)
        return found is not None and found.is_kept

    enough = smallest_enough(low, high, is_enough)
    return _plan(system.name, None if enough is None else enough * per_node, tried, wish.share, bounds)


def deciding(result: SystemResult, share: float, bounds: Mapping[str, float]) -> Deciding | None:
    """None if too few jobs end."""
    found = sorted(((slowdown / bounds[name], slowdown, bounds[name]) for name, slowdown in total_slowdowns(result).items()))
    needed = max(1, -int(-share * len(result.works) // 1))
    return Deciding(*found[needed - 1][1:]) if len(found) >= needed else None


def total_slowdowns(result: SystemResult) -> dict[str, float]:
    """Of each job that ended: from its arrival to its end, over its time alone."""
    found = {}
    for work in result.works:
        if work.end_s is not None and work.start_s is not None and work.slowdown:
            alone_s = (work.end_s - work.start_s) / work.slowdown
            found[work.name] = (work.end_s - work.arrival_s) / alone_s
    return found


def _plan(system: str, num_devices: int | None, tried: dict[int, SystemResult], share: float, bounds: Mapping[str, float]) -> Plan:
    found = {devices: deciding(result, share, bounds) for devices, result in sorted(tried.items())}
    looked = {devices: None if one is None else one.slowdown for devices, one in found.items()}
    if num_devices is None:
        return Plan(system, None, None, 0, None, None, None, None, looked)
    result = tried[num_devices]
    late = sum(slowdown > bounds[name] for name, slowdown in total_slowdowns(result).items())
    figures = result.figures
    return Plan(
        system, num_devices, looked[num_devices], late, figures["makespan_s"], figures["device_hours"], figures["cost"],
        figures["cluster_utilisation"], looked,
    )  # fmt: skip
