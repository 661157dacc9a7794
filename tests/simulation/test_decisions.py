"""The simulator decides nothing itself: its placer and queues are the service's own, and decide the same on the same events."""

from collections.abc import Callable
from typing import Any

import pytest

from plait.placement.placer import Placer
from plait.residency.ledger import ResidencyLedger
from plait.scheduling.function_call import FunctionCall
from plait.scheduling.group_queue import GroupQueue
from plait.scheduling.orders import ORDERS
from plait.simulation.cluster import POLICIES, SimulatedCluster
from plait.simulation.cluster_shape import ClusterShape, NodeFailure
from plait.simulation.hardware import accelerator
from plait.simulation.plexrl_jobs import SIZES, PlexrlWorkload, plexrl_jobs

CLUSTER = ClusterShape(accelerator("H800"), 64, nodes_per_group=2)
JOBS = plexrl_jobs(PlexrlWorkload(8, 300.0, sizes=SIZES[:1], median_job_s=4000.0, kinds_per_size=2), 1)
EVENTS = ("submit", "job_ended", "node_joined", "node_left", "profile_updated")


def recorded(placer: Placer, log: list[tuple[str, tuple[Any, ...], Any]]) -> None:
    def wrap(name: str, act: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            decided = act(*arguments)
            log.append((name, arguments, decided))
            return decided

        return call

    for name in EVENTS:
        setattr(placer, name, wrap(name, getattr(placer, name)))


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_a_placer_of_its_own_decides_the_same(policy: str) -> None:
    cluster = SimulatedCluster(CLUSTER, policy, "hrrs", 0, None, CLUSTER.costs, 16)
    log: list[tuple[str, tuple[Any, ...], Any]] = []
    recorded(cluster.placer, log)
    cluster.add(JOBS, [NodeFailure("node-0000", 3000.0, 500.0)])
    cluster.run()
    assert len(log) > 2 * len(JOBS)
    placer = POLICIES[policy](CLUSTER.nodes())
    for name, arguments, decided in log:
        assert getattr(placer, name)(*arguments) == decided


def test_queues_pick_what_a_queue_of_its_own_picks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each queue is asked twice at every decision: `peek` changes nothing, and `next` must take what it says. A call that comes
    to an idle group is taken as `add` and `next` would."""
    taken: list[FunctionCall] = []
    started: list[FunctionCall] = []
    real_next, real_start = GroupQueue.next, GroupQueue.start

    def watched(queue: GroupQueue, now_s: float) -> FunctionCall | None:
        expected = queue.peek(now_s) if queue.running is None else None
        call = real_next(queue, now_s)
        assert call == expected
        taken.extend([call] if call else [])
        return call

    def watched_start(queue: GroupQueue, call: FunctionCall, now_s: float) -> None:
        assert queue.running is None
        assert queue.peek(now_s) is None
        real_start(queue, call, now_s)
        started.append(call)

    monkeypatch.setattr(GroupQueue, "next", watched)
    monkeypatch.setattr(GroupQueue, "start", watched_start)
    cluster = SimulatedCluster(CLUSTER, "pack", "hrrs", 0, None, CLUSTER.costs, 16)
    cluster.add(JOBS)
    cluster.run()
    assert len(taken) > 100
    assert len(started) > 100
    functions = {call.function for call in taken}
    assert functions > {"forward_backward", "optim_step"}
    assert any(function.isdigit() for function in functions), "of admission's co-runs"
    assert {call.function for call in started} >= {"sample", "forward_backward"}


def test_policies_come_from_the_packages_of_the_service() -> None:
    cluster = SimulatedCluster(CLUSTER, "pack", "hrrs", 0, None, CLUSTER.costs, 16)
    cluster.add(JOBS[:1])
    cluster.run(until_s=100.0)
    group = next(iter(cluster.groups.values()))
    assert type(group.queue) is GroupQueue
    assert type(group.residency.ledger) is ResidencyLedger
    assert {type(cluster.placer).__module__} == {"plait.placement.policies"}
    assert {order.__module__ for order in ORDERS.values()} == {"plait.scheduling.orders", "plait.scheduling.hrrs"}
