"""A co-run's groups are worker groups' queues: any order of `scheduling`, asked as a group asks it."""

from collections.abc import Callable, Sequence
from functools import partial

from plait.placement.admission import judge
from plait.placement.corun import Member, chained, slowdowns
from plait.placement.corun_group import CoRunGroup
from plait.placement.decision import Action
from plait.placement.job import Job, Pool, Role
from plait.placement.job_profile import JobProfile, Phase
from plait.placement.policies import Pack
from plait.placement.resource_view import Bytes, Node
from plait.scheduling.function_call import FunctionCall
from plait.scheduling.orders import ORDERS, Fifo, Hrrs, ShortestFirst


def served(order: str, phases: Sequence[tuple[int, float, float]], resident: int | None = None) -> list[int]:
    """Members (duration, switch) that wait from the start, in the order in which they are served."""
    group = CoRunGroup(ORDERS[order])
    for member, duration_s, switch_s in phases:
        group.add((member, 0), duration_s, switch_s)
    if resident is not None:
        group.add((resident, 1), 1.0, phases[0][2])
        group.release((resident, 1), 0.0)
        group.serve(0.0)
        group.ended(1.0)
    for member, _, _ in phases:
        group.release((member, 0), 1.0)
    found, now_s = [], 1.0
    while (started := group.serve(now_s)) is not None:
        found.append(started[0][0])
        now_s = started[1]
        group.ended(now_s)
    return found


def test_each_order_serves_as_it_says() -> None:
    phases = [(0, 30.0, 2.0), (1, 10.0, 2.0), (2, 20.0, 2.0)]
    assert served("fifo", phases) == [0, 1, 2]
    assert served("shortest-first", phases) == served("hrrs", phases) == [1, 2, 0]
    assert served("hrrs", [(0, 10.0, 5.0), (1, 10.0, 5.0)], resident=1) == [1, 0]


def test_setup_is_paid_when_another_was_served_last() -> None:
    group = CoRunGroup(Fifo)
    group.add((0, 0), 10.0, 3.0)
    group.add((1, 0), 20.0, 4.0)
    ends = []
    for member in (0, 0, 1, 0):
        group.release((member, 0), 0.0)
        started = group.serve(0.0)
        assert started is not None
        assert started[0] == (member, 0)
        assert group.serve(0.0) is None
        ends.append(started[1])
        group.ended(started[1])
    assert ends == [10.0, 10.0, 24.0, 13.0]


class LastFirst(Fifo):
    """No order of the service."""

    asked = 0

    def pick(
        self, heads: Sequence[FunctionCall], now_s: float, service_s: Callable[[FunctionCall], float],
        setup_s: Callable[[str], float],
    ) -> FunctionCall:  # fmt: skip
        LastFirst.asked += 1
        return heads[-1]


def overloaded() -> list[Member]:
    """Short phases and a long one, more than the group can do."""
    return [
        chained(f"j{k}", 100.0, [(k + 1, 0.0, 100.0 - d, 0.0), (0, 100.0 - d, d, 1.0)])
        for k, d in enumerate((60.0, 40.0, 40.0, 20.0))
    ]


def test_whoever_orders_the_calls_decides_what_a_co_run_costs() -> None:
    found = {name: slowdowns(overloaded(), 50, order) for name, order in ORDERS.items()}
    assert found["fifo"]["j0"] < found["hrrs"]["j0"] < found["shortest-first"]["j0"]
    assert found["hrrs"] == slowdowns(overloaded(), 50)
    assert slowdowns(overloaded(), 50, partial(Hrrs, lookahead=0)) != found["hrrs"]
    before = LastFirst.asked
    assert slowdowns(overloaded(), 50, LastFirst) != found["fifo"]
    assert LastFirst.asked > before


def test_who_starves_is_late() -> None:
    """Shortest first: two jobs of 55 % and 50 % leave the third no gap."""
    members = [chained(f"j{k}", 100.0, [(0, 0.0, d, 0.0)]) for k, d in enumerate((90.0, 55.0, 50.0))]
    assert slowdowns(members, 16, ShortestFirst)["j0"] > 50


def test_admission_and_placers_expect_the_order_that_they_are_told() -> None:
    slos = {"j0": 1.7, "j1": 1.7, "j2": 1.7, "j3": 1.7}
    assert judge(overloaded(), slos, Fifo).is_admitted
    assert "j0" in judge(overloaded(), slos).reason
    made: list[Fifo] = []

    def order() -> Fifo:
        made.append(Fifo())
        return made[-1]

    placer = Pack([Node(f"n{number}", "g", 8, Bytes(80, 1000, 0)) for number in range(4)], order=order)
    placer.profiles["k"] = JobProfile(100.0, (Phase(Role.ROLLOUT, 0, 75), Phase(Role.TRAIN, 75, 25)))
    for name in ("a", "b"):
        pools = (Pool((Role.ROLLOUT,), 8, 10, 1.0), Pool((Role.TRAIN,), 8, 10, 1.0))
        assert placer.submit(Job(name, "k", pools), 0.0).action is Action.PLACED
    assert placer.groups.jobs["a"].groups[1] == placer.groups.jobs["b"].groups[1]
    assert made
