"""What admission expects of a co-run is what worker groups then do, in every order; and neither has an order of its own."""

import ast
from collections import defaultdict
from pathlib import Path
from random import Random

import pytest
import simpy
from hypothesis import given, settings
from hypothesis import strategies as st

import plait
from plait.placement.corun import CoRun, Member, chained
from plait.placement.corun_group import CoRunGroup
from plait.placement.job import Role
from plait.residency.tier import Tier
from plait.scheduling.function_call import FunctionCall
from plait.scheduling.group_queue import GroupQueue
from plait.scheduling.orders import ORDERS
from plait.simulation.cluster import SimulatedCluster
from plait.simulation.cluster_shape import ClusterShape
from plait.simulation.group_meter import ClusterMeter, GroupMeter
from plait.simulation.groups import SimulatedGroup
from plait.simulation.hardware import accelerator
from plait.simulation.job_shape import JobShape, PartShape
from plait.simulation.jobs import SimulatedJob
from plait.simulation.plexrl_jobs import SIZES, PlexrlWorkload, plexrl_jobs
from plait.types.python_syntax import parse_module

SWITCH_S = 3.0


class OneResident:
    """Instead of the state manager's ledger: moving any state to the devices takes SWITCH_S, and only one has room."""

    may_stage = False

    def __init__(self) -> None:
        self.resident = ""

    def join(self, deployment: str, num_bytes: int, tier: Tier) -> None:
        pass

    def setup_s(self, deployment: str) -> float:
        return 0.0 if self.resident in ("", deployment) else SWITCH_S

    def enter(self, deployment: str, now_s: float) -> float:
        setup_s = self.setup_s(deployment)
        self.resident = deployment
        return setup_s

    def changed(self, deployment: str) -> None:
        pass


def group_of(env: simpy.Environment, name: str, order: str) -> SimulatedGroup:
    return SimulatedGroup(env, name, OneResident(), ORDERS[order](), GroupMeter(ClusterMeter(), {"row": 8}, 0.0))  # type: ignore[arg-type]


def random_jobs(seed: int) -> list[tuple[JobShape, float]]:
    """Synchronous, and when each starts; together they ask for more than one training group can do, or nearly."""
    rng = Random(seed)
    found = []
    for number in range(rng.choice([2, 3, 4])):
        rollout, train = PartShape(8, rng.uniform(20, 90)), PartShape(8, rng.uniform(5, 60))
        found.append((JobShape(f"j{number}", "k", "Qwen3-8B", 0.0, 400, rollout, train), rng.uniform(0, 100)))
    return found


def simulated(jobs: list[tuple[JobShape, float]], order: str, until_s: float) -> dict[str, list[float]]:
    """When each step of each job was trained: rollouts on groups of their own, all training on one, which knows what calls take."""
    env = simpy.Environment()
    shared, ends = group_of(env, "train", order), defaultdict(list)
    for shape, start_s in jobs:
        own = group_of(env, shape.job_id, order)
        job = SimulatedJob(env, shape, "0", lambda job: ends[job.shape.job_id].append(env.now), lambda _: None)
        for role, group in ((Role.ROLLOUT, own), (Role.TRAIN, shared)):
            group.join(job.deployment(role), 1, Tier.HOST)
        known = FunctionCall("", job.deployment(Role.TRAIN), "optim_step", "", 0, 0.0)
        shared.services.observe(known, shape.train.call_s)
        job.start({Role.ROLLOUT: own, Role.TRAIN: shared}, start_s)
    env.run(until=until_s)
    return ends


def member_of(number: int, shape: JobShape, start_s: float) -> Member:
    rollout_s, train_s = shape.rollout.call_s, shape.train.call_s
    phases = [(number + 1, 0.0, rollout_s, SWITCH_S), (0, rollout_s, train_s, SWITCH_S)]
    return chained(shape.job_id, rollout_s + train_s, phases, start_s)


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 2**20), st.sampled_from(sorted(ORDERS.keys() - {"shortest-first"})))
def test_simulated_groups_take_as_long_as_admission_expects(seed: int, order: str) -> None:
    """Shortest first may leave one behind for good."""
    jobs = random_jobs(seed)
    run = CoRun([member_of(number, *job) for number, job in enumerate(jobs)], ORDERS[order])
    run.until(12)
    ends = simulated(jobs, order, max(run.ended_s) + 1e-3)
    for number, (shape, _) in enumerate(jobs):
        assert ends[shape.job_id][run.periods[number] - 1] == pytest.approx(run.ended_s[number])


def test_admission_asks_the_queues_and_orders_of_the_service(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the placer's own decisions in a simulation: all its co-runs' queues, each asked twice, with the order that groups have."""
    made: list[CoRunGroup] = []
    real_init, real_next, asked = CoRunGroup.__init__, GroupQueue.next, 0

    def watched_init(group: CoRunGroup, order: object) -> None:
        assert order is ORDERS["fifo"]
        real_init(group, order)
        made.append(group)

    def watched_next(queue: GroupQueue, now_s: float) -> FunctionCall | None:
        nonlocal asked
        asked += 1
        expected = queue.peek(now_s) if queue.running is None else None
        call = real_next(queue, now_s)
        assert call == expected
        return call

    monkeypatch.setattr(CoRunGroup, "__init__", watched_init)
    shape = ClusterShape(accelerator("H800"), 64, nodes_per_group=2)
    cluster = SimulatedCluster(shape, "pack", "fifo", 0, None, shape.costs, 16)
    cluster.add(plexrl_jobs(PlexrlWorkload(8, 300.0, sizes=SIZES[:1], median_job_s=2000.0, kinds_per_size=2), 1))
    monkeypatch.setattr(GroupQueue, "next", watched_next)
    cluster.run()
    assert any(group.is_contended for group in made)
    assert {type(group.queue) for group in made} == {GroupQueue}
    assert asked > 1000


PACKAGES = ("placement", "simulation")
ORDER_NAMES = {"pick", *(name.replace("-", "") for name in ORDERS)}


@pytest.mark.parametrize("package", PACKAGES)
def test_no_order_is_written_a_second_time(package: str) -> None:
    """Nothing in the package picks among calls, or is named after an order."""
    folder = Path(plait.__file__).parent / package
    for path in sorted(folder.glob("*.py")):
        for node in ast.walk(parse_module(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                name = node.name.replace("_", "").lower()
                assert name not in ORDER_NAMES, f"{path.name} has {node.name}: use plait.scheduling.orders"
