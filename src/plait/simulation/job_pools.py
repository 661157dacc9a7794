"""What the placer is told of a simulated job."""

from plait.placement.job import Job, Pool, Role
from plait.simulation.costs import CostModel
from plait.simulation.job_shape import JobShape, PartShape


def placed_job(shape: JobShape, costs: dict[Role, CostModel], switch_s: float) -> Job:
    """`costs` by part; a switch: state of others out, its own in, and `switch_s`."""
    switches = {role: _switch_s(part, costs[role], switch_s) for role, part in shape.parts.items()}
    if shape.is_colocated:
        num_bytes = max(part.bytes_per_device for part in shape.parts.values())
        both = Pool((Role.ROLLOUT, Role.TRAIN), shape.rollout.num_devices, num_bytes, max(switches.values()))
        return Job(shape.job_id, shape.kind, (both,), shape.slo, shape.alone_s)
    pools = [Pool((role,), part.num_devices, part.bytes_per_device, switches[role]) for role, part in shape.parts.items()]
    return Job(shape.job_id, shape.kind, tuple(pools), shape.slo, shape.alone_s)


def _switch_s(part: PartShape, costs: CostModel, switch_s: float) -> float:
    num_bytes = part.bytes_per_device * part.num_devices
    return switch_s + costs.load_s(num_bytes, "host") + costs.offload_s(num_bytes, "host")
