"""Calls that are kept as one are told one by one, whenever the trace is looked at."""

import simpy

from plait.placement.demand_trace import FunctionRecord
from plait.placement.job import Role
from plait.scheduling.orders import Fifo
from plait.simulation.ended_calls import EndedCalls
from plait.simulation.job_shape import JobShape, PartShape
from plait.simulation.jobs import SimulatedJob
from tests.simulation.test_admission import group_of


def told(calls: list[EndedCalls]) -> list[FunctionRecord]:
    found: list[FunctionRecord] = []
    for several in calls:
        several.tell(found.append)
    return found


def test_every_call_is_told_once_with_its_times_on_the_own_clock() -> None:
    """A step: three rollout calls of 2 s, 1 s apart; two of training, 4 s each. Somebody listens from the second call on."""
    env = simpy.Environment()
    shape = JobShape("j", "k", "Qwen3-8B", 0.0, 2, PartShape(8, 6.0, 3, 1.0, bytes_per_device=7), PartShape(4, 8.0, 2))
    job = SimulatedJob(env, shape, "0", lambda _: None, lambda _: None)
    groups = {role: group_of(env, role.value, "fifo") for role in Role}
    for role, group in groups.items():
        group.join(job.deployment(role), 1, None)  # type: ignore[arg-type]
    calls: list[EndedCalls] = []
    job.start(groups, 0.0)
    env.run(until=4.0)
    job.record = calls.append
    env.run()
    rollout, train = (
        FunctionRecord(0, 0, name, role, n, b) for name, role, n, b in (("sample", Role.ROLLOUT, 8, 7), ("train", Role.TRAIN, 4, 0))
    )
    assert isinstance(groups[Role.TRAIN].queue._order, Fifo)
    times = (
        [(3.0, 5.0), (6.0, 8.0)],
        [(8.0, 12.0), (12.0, 16.0)],
        [(16.0, 18.0), (19.0, 21.0), (22.0, 24.0)],
        [(24.0, 28.0), (28.0, 32.0)],
    )
    kinds = (rollout, train, rollout, train)
    expected = [
        (s, e, kind.function, kind.role, kind.num_devices, kind.num_bytes)
        for kind, spans in zip(kinds, times, strict=True)
        for s, e in spans
    ]
    assert [(c.start_s, c.end_s, c.function, c.role, c.num_devices, c.num_bytes) for c in told(calls)] == expected
    assert len(calls) == 4
