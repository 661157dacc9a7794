"""The jobs and the cluster of a scenario, drawn from its seed: the same for every system but for what the system sets."""

import math
import random

import msgspec

from plait.simulation.cluster_shape import ClusterShape, NodeFailure
from plait.simulation.hardware import accelerator
from plait.simulation.job_room import devices_per_node, part_bytes
from plait.simulation.job_scenario import JobScenario, JobSettings, JobSystem, PartSettings, TraceSettings
from plait.simulation.job_shape import JobShape, PartShape
from plait.simulation.philly_jobs import nearest_kind, traced_jobs

QUICK_SHARE = 0.1
"""In a quick look, of the jobs of a kind that has MANY or more, of the steps of one that has fewer."""
MANY = 100
DAY_S = 86_400.0


def cluster_of(scenario: JobScenario) -> ClusterShape:
    device = msgspec.structs.replace(accelerator(scenario.cluster.accelerator), devices_per_node=devices_per_node(scenario))
    return ClusterShape(
        device, scenario.cluster.devices, nodes_per_group=scenario.nodes_per_group, state_share=scenario.state_share,
        switch_s=scenario.switch_s,
    )  # fmt: skip


def failures_of(scenario: JobScenario) -> list[NodeFailure]:
    return [NodeFailure(failure.node, failure.at_s, failure.down_s or math.inf) for failure in scenario.failures]


def jobs_of(scenario: JobScenario, system: JobSystem, seed: int, is_quick: bool) -> list[JobShape]:
    if scenario.trace is not None:
        return _traced(scenario, scenario.trace, system, seed, is_quick)
    return [shape for settings in scenario.jobs for shape in _kind(settings, system, seed, is_quick)]


def _traced(scenario: JobScenario, trace: TraceSettings, system: JobSystem, seed: int, is_quick: bool) -> list[JobShape]:
    """The same jobs under each system: as many steps as fit the recorded time when a job runs as its kind does."""
    entries = traced_jobs(trace)
    share = QUICK_SHARE if is_quick and len(entries) < MANY else 1.0
    shapes = []
    for entry in entries[: -(-len(entries) // 10)] if is_quick and len(entries) >= MANY else entries:
        kind = nearest_kind(scenario.jobs, entry.num_devices * trace.device_scale)
        factor = random.Random(f"{seed}/{entry.job_id}").lognormvariate(0.0, kind.seconds_sigma)
        period_s = shape_of(kind, JobSystem(name="any"), entry.job_id, 0.0, 1, factor).period_s
        steps = max(1, round(share * entry.run_s / period_s))
        shapes.append(shape_of(kind, system, entry.job_id, share * entry.submitted_s, steps, factor))
    return shapes


def _kind(settings: JobSettings, system: JobSystem, seed: int, is_quick: bool) -> list[JobShape]:
    rng = random.Random(f"{seed}/{settings.name}")
    shapes, arrival_s = [], settings.arrival_s
    count = round(settings.count * QUICK_SHARE) if is_quick and settings.count >= MANY else settings.count
    share = QUICK_SHARE if is_quick and settings.count < MANY else 1.0
    for number in range(count):
        steps = settings.steps * share * rng.lognormvariate(0.0, settings.steps_sigma)
        factor = rng.lognormvariate(0.0, settings.seconds_sigma)
        gap = rng.expovariate(1.0)
        name = settings.name if settings.count == 1 else f"{settings.name}-{number + 1:04}"
        shapes.append(shape_of(settings, system, name, arrival_s, max(1, round(steps)), factor))
        arrival_s += settings.arrival_every_s * share * (gap if settings.arrivals == "poisson" else 1.0)
    return shapes


def shape_of(settings: JobSettings, system: JobSystem, name: str, arrival_s: float, steps: int, factor: float) -> JobShape:
    is_colocated = settings.colocated if system.colocated is None else system.colocated
    staleness = settings.staleness if system.staleness is None else system.staleness
    devices = max(settings.rollout.devices, settings.train.devices) if is_colocated else 0
    return JobShape(
        name, settings.name, settings.model, arrival_s, steps,
        rollout=_part(settings.rollout, settings.model, devices, factor, False),
        train=_part(settings.train, settings.model, devices, factor, True),
        staleness=0 if is_colocated else staleness, is_colocated=is_colocated, slo=settings.slo, fill=settings.fill,
    )  # fmt: skip


def _part(part: PartSettings, model: str, devices: int, factor: float, is_training: bool) -> PartShape:
    num_devices = devices or part.devices
    num_bytes = part_bytes(part, model, num_devices, is_training)
    return PartShape(
        num_devices, part.seconds * factor, part.calls, part.delay_s, part.jitter, part.drift, num_bytes, part.after_s,
        part.after_jitter,
    )  # fmt: skip
