"""The plan for the head of a queue, against looking at every number of ends on devices of its own."""

from hypothesis import given, settings
from hypothesis import strategies as st

from plait.placement.head_plan import plan_for
from plait.placement.job import Job
from plait.placement.policies import Isolated
from plait.placement.resource_view import Bytes, Slice
from plait.placement.worker_groups import WorkerGroups
from tests.placement.test_placer import job, nodes


def first_place(waiting: Job, groups: WorkerGroups, now_s: float) -> tuple[float, set[Slice]] | None:
    """When the head can start, and where."""
    ends = sorted((groups.end_s(group_id, now_s), group_id) for group_id in groups.groups)
    for number in range(len(ends) + 1):
        view = groups.view.copy()
        for _, group_id in ends[:number]:
            for part in groups.groups[group_id].slices:
                view.vacate(part)
        found = view.find_all([(pool.num_devices, Bytes(device=pool.bytes_per_device)) for pool in waiting.pools])
        if found is not None:
            return (ends[number - 1][0] if number else now_s), {part for slices in found for part in slices}
    return None


@settings(max_examples=30)
@given(
    st.lists(st.tuples(st.sampled_from([1, 2, 4, 8, 16]), st.integers(1, 9)), min_size=1, max_size=12),
    st.sampled_from([4, 8, 16, 24]), st.integers(0, 3),
)  # fmt: skip
def test_the_head_starts_at_the_earliest_end_that_makes_room(running: list[tuple[int, int]], devices: int, num_ended: int) -> None:
    placer = Isolated(nodes(6))
    for number, (size, length) in enumerate(running):
        placer.submit(job(f"j{number}", devices=size, expected_s=1000.0 * length), float(number))
    for name in sorted(placer.groups.jobs)[:num_ended]:
        placer.job_ended(name, 500.0)
    waiting = job("head", devices=devices)
    plan, expected = plan_for(waiting, placer.groups, 600.0), first_place(waiting, placer.groups, 600.0)
    assert (plan is None) == (expected is None)
    if plan is not None and expected is not None:
        devices_of: dict[str, set[int]] = {}
        for part in expected[1]:
            devices_of.setdefault(part.node_id, set()).update(part.devices)
        assert (plan.start_s, plan.devices) == (expected[0], devices_of)
