"""Whether each kind of job has room on the empty cluster, and what its parts keep on a device."""

from collections.abc import Iterator

from plait.placement.resource_view import Bytes, Node, ResourceView
from plait.simulation.hardware import Accelerator, accelerator
from plait.simulation.job_scenario import JobScenario, JobSettings, PartSettings
from plait.simulation.model_shapes import model_shape
from plait.simulation.scenario import ScenarioSettings

Location = tuple[str | int, ...]
TRAINING_BYTES_PER_PARAMETER = 16.0
"""Weights and gradients in 16 bits, master weights and two moments in 32 (ZeRO, arXiv 1910.02054, section 3.1)."""


def devices_per_node(scenario: ScenarioSettings) -> int:
    return scenario.cluster.devices_per_node or accelerator(scenario.cluster.accelerator).devices_per_node


def part_bytes(part: PartSettings, model: str, num_devices: int, is_training: bool) -> int:
    """On each of its devices, while a call runs."""
    if part.state_bytes_per_device is not None:
        return int(part.state_bytes_per_device)
    shape = model_shape(model)
    each = TRAINING_BYTES_PER_PARAMETER if is_training else shape.bytes_per_parameter
    return int(shape.num_parameters * each / num_devices)


def room_problems(scenario: JobScenario) -> Iterator[tuple[Location, str]]:
    """Jobs that the placer would reject, whenever they come: each with the key that is to be changed."""
    device, per_node = accelerator(scenario.cluster.accelerator), devices_per_node(scenario)
    memory = Bytes(device=int(device.memory_bytes))
    row = scenario.nodes_per_group
    view = ResourceView(Node(str(node), str(node // row), per_node, memory) for node in range(scenario.cluster.devices // per_node))
    for number, job in enumerate(scenario.jobs):
        name = f'jobs[{number}] (name "{job.name}")'
        beyond = list(_beyond_memory(job, device))
        yield from ((("jobs", number, key), f"{name}.{key}{text}") for key, text in beyond)
        if not beyond and any(view.find_all(_wanted(job, together)) is None for together in _colocations(scenario, job)):
            text = f"{job.rollout.devices} + {job.train.devices} devices, which no empty cluster of {scenario.cluster.devices} has"
            yield ("jobs", number), f"{name} wants {text}: what needs more than a node's {per_node} gets whole nodes"


def with_room(scenario: JobScenario) -> JobScenario:
    """The scenario on as many devices as its largest job needs, if it has fewer, and without failures."""
    per_node = devices_per_node(scenario)
    nodes = max(-(-job.rollout.devices // per_node) + -(-job.train.devices // per_node) for job in scenario.jobs)
    devices = per_node * max(nodes, -(-scenario.cluster.devices // per_node))
    cluster = scenario.cluster.model_copy(update={"devices": devices})
    return scenario.model_copy(update={"cluster": cluster, "failures": ()})


def _colocations(scenario: JobScenario, job: JobSettings) -> set[bool]:
    return {job.colocated if system.colocated is None else system.colocated for system in scenario.systems}


def _wanted(job: JobSettings, is_colocated: bool) -> list[tuple[int, Bytes]]:
    parts = (job.rollout.devices, job.train.devices)
    return [(devices, Bytes()) for devices in ((max(parts),) if is_colocated else parts)]


def _beyond_memory(job: JobSettings, device: Accelerator) -> Iterator[tuple[str, str]]:
    for key, part in (("rollout", job.rollout), ("train", job.train)):
        needed = part_bytes(part, job.model, part.devices, key == "train")
        if needed <= device.memory_bytes:
            continue
        has = f"and {device.name} has {device.memory_bytes / 1e9:,.0f} GB"
        if part.state_bytes_per_device is not None:
            yield key, f".state_bytes_per_device = {part.state_bytes_per_device:g}: that is {needed / 1e9:,.0f} GB, {has}"
        else:
            enough = -(-needed * part.devices // int(device.memory_bytes))
            text = f".devices = {part.devices}: {job.model} has {needed / 1e9:,.0f} GB on each, {has}; give {enough} or more"
            yield key, f"{text}, or state_bytes_per_device"
