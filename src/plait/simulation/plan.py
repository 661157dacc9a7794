"""The smallest cluster on which jobs keep their bounds, found by simulating clusters of many sizes."""

from collections.abc import Callable
from typing import Any

import msgspec

from plait.simulation.hardware import accelerator
from plait.simulation.job_results import simulate_system
from plait.simulation.job_scenario import JobScenario, JobSystem
from plait.simulation.job_workload import devices_per_node, jobs_of
from plait.simulation.lasting import lasting
from plait.simulation.results import SystemResult
from plait.simulation.smallest import smallest_enough

OnTry = Callable[[str, int], None]
"""(System, devices)"""


class Wish(msgspec.Struct, frozen=True):
    """`share` of the jobs have to end within `slo` times their time alone, counted from their arrival: waiting counts."""

    slo: float
    share: float = 1.0


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
    scenario = lasting(scenario)
    per_node = devices_per_node(scenario)
    jobs = jobs_of(scenario, system, seed, is_quick)
    low = max(-(-job.num_devices // per_node) for job in jobs)
    high = max(low, sum(-(-part.num_devices // per_node) for job in jobs for part in job.parts.values()))
    tried: dict[int, SystemResult] = {}

    def is_enough(num_nodes: int) -> bool:
        if on_try is not None:
            on_try(system.name, num_nodes * per_node)
        cluster = scenario.cluster.model_copy(update={"devices": num_nodes * per_node})
        changed: Any = scenario.model_copy(update={"cluster": cluster, "failures": ()})
        tried[num_nodes * per_node] = simulate_system(changed, system, seed, is_quick)
        deciding = deciding_slowdown(tried[num_nodes * per_node], wish.share)
        return deciding is not None and deciding <= wish.slo

    found = smallest_enough(low, high, is_enough)
    return _plan(system.name, None if found is None else found * per_node, tried, wish)


def deciding_slowdown(result: SystemResult, share: float) -> float | None:
    """Of the job that is the last that has to keep the bound, from arrival to end; None if it does not end."""
    found = sorted(total_slowdown(result))
    needed = max(1, -int(-share * len(result.works) // 1))
    return found[needed - 1] if len(found) >= needed else None


def total_slowdown(result: SystemResult) -> list[float]:
    """Of each job that ended: from its arrival to its end, over its time alone."""
    found = []
    for work in result.works:
        if work.end_s is not None and work.start_s is not None and work.slowdown:
            alone_s = (work.end_s - work.start_s) / work.slowdown
            found.append((work.end_s - work.arrival_s) / alone_s)
    return found


def _plan(system: str, num_devices: int | None, tried: dict[int, SystemResult], wish: Wish) -> Plan:
    looked = {devices: deciding_slowdown(result, wish.share) for devices, result in sorted(tried.items())}
    if num_devices is None:
        return Plan(system, None, None, 0, None, None, None, None, looked)
    result = tried[num_devices]
    late = sum(slowdown > wish.slo for slowdown in total_slowdown(result))
    figures = result.figures
    return Plan(
        system, num_devices, looked[num_devices], late, figures["makespan_s"], figures["device_hours"], figures["cost"],
        figures["cluster_utilisation"], looked,
    )  # fmt: skip
