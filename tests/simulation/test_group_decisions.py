"""A simulated worker group against the service's own dispatcher: who runs, who comes before its turn, and who leaves for it."""

from collections.abc import Collection
from dataclasses import dataclass, field

import pytest
import simpy
from hypothesis import example, given, settings
from hypothesis import strategies as st

from plait.cluster.model_messages import ForwardBackward
from plait.placement.job import Role
from plait.residency.rates import Route, TransferRates
from plait.residency.tier import Tier
from plait.scheduling.function_call import FunctionCall
from plait.scheduling.orders import ORDERS, Fifo
from plait.scheduling.setup_times import SetupTimes
from plait.simulation.call_stretch import CallStretch
from plait.simulation.group_meter import ClusterMeter, GroupMeter
from plait.simulation.group_residency import GroupResidency
from plait.simulation.groups import SimulatedGroup
from tests.cluster.groups.fake_process import FakeProcess
from tests.simulation.test_groups import GB, group_of


class NoTime(TransferRates):
    def estimate_s(self, route: Route, num_bytes: int) -> float:
        return 0.0


class NoSetup(SetupTimes):
    def load_s(self, deployment: str, tier: str) -> float:
        return 0.0

    def offload_s(self, deployment: str) -> float:
        return 0.0


class Watched(GroupResidency):
    def __init__(self, budget_bytes: int) -> None:
        super().__init__(budget_bytes, NoTime())
        self.staged: list[tuple[str, tuple[str, ...]]] = []

    def stage(self, deployment: str, kept: Collection[str]) -> tuple[str, ...] | None:
        leaving = super().stage(deployment, kept)
        if leaving is not None:
            self.staged.append((deployment, leaving))
        return leaving


@dataclass
class Both:
    """The real dispatcher follows the simulation's clock: it hears of each call, of each end, and of what that took, as the
    simulated group does. Moving state takes no time in either."""

    sizes: dict[str, int]
    device_bytes: int
    order: str
    started: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.env, self.residency = simpy.Environment(), Watched(self.device_bytes)
        self.real, order = FakeProcess(ORDERS[self.order](), self.device_bytes, dict(self.sizes)), ORDERS[self.order]()
        self.real.dispatcher.residents._times = NoSetup()
        meter = GroupMeter(ClusterMeter(), {"row": 1}, 0.0)
        self.group = SimulatedGroup(self.env, "g", self.residency, order, meter)
        for name, num_bytes in self.sizes.items():
            self.group.join(name, num_bytes, Tier.HOST)
            order.served(FunctionCall(name, name, "host", "", 0, 0.0))
        self.residency.enter(name, 0.0)  # Each leaves the device as the next is taken in.

    def submit_at(self, at_s: float, number: int, name: str, call_s: float) -> None:
        self.env.timeout(at_s).callbacks.append(lambda _: self.submit(number, name, call_s))

    def submit(self, number: int, name: str, call_s: float) -> None:
        self.real.now_s = self.env.now
        self.real.send(name, ForwardBackward("m", number, (), "{}"))
        call = FunctionCall(f"{number}", name, "forward_backward", "m", 0, self.env.now)
        self.group.submit(CallStretch(call, Role.TRAIN, call_s, lambda _: self.ended(name, call_s)))

    def ended(self, name: str, call_s: float) -> None:
        self.started.append(name)
        self.real.now_s = self.env.now
        self.real.end_call(call_s)


CALLS = st.lists(st.tuples(st.floats(0.1, 3.0), st.sampled_from("abcd"), st.floats(0.1, 5.0)), min_size=1, max_size=24)


AGAIN = [(1.0, "a", 1.0), (0.9, "b", 1.0), (2.0, "c", 0.5), (1.0, "a", 1.0), (0.9, "b", 1.0)]
"""The one that came before its turn is the next to do so again, after nobody followed."""


@settings(deadline=None, max_examples=60)
@example(AGAIN, [1, 1, 5, 1], 6, "fifo")
@given(CALLS, st.lists(st.integers(1, 6), min_size=4, max_size=4), st.integers(6, 14), st.sampled_from(sorted(ORDERS)))
def test_a_simulated_group_decides_as_the_dispatcher(
    calls: list[tuple[float, str, float]], num_bytes: list[int], device_bytes: int, order: str
) -> None:
    both = Both(dict(zip("abcd", num_bytes, strict=True)), device_bytes, order)
    now_s = 0.0
    for number, (gap_s, name, call_s) in enumerate(calls):
        now_s += gap_s
        both.submit_at(now_s, number, name, call_s)
    both.env.run()
    assert both.started == [call.deployment for call in both.real.calls]
    for name in "abcd":
        call = FunctionCall("", name, "forward_backward", "m", 0, 0.0)
        assert both.group.services.estimate_s(call) == both.real.dispatcher.services.estimate_s(call)
    assert both.residency.staged == both.real.staged
    assert set(both.residency.resident) == set(both.real.resident)


def staged(first_s: float, budget_bytes: int, role: Role = Role.ROLLOUT) -> tuple[float, float, SimulatedGroup]:
    """When b's call ends, which comes while a's runs for so long; how long b's state takes; c's lies on the devices, and rests.

    `role`: of c's call before; training changes its state.
    """
    env, group, _ = group_of(Fifo(), budget_bytes)
    ends_s: dict[str, float] = {}

    def submit(name: str, call_s: float) -> None:
        call = FunctionCall(name + str(env.now), name, "f", "s", 0, env.now)
        of = role if name == "c" else Role.ROLLOUT
        group.submit(CallStretch(call, of, call_s, lambda _: ends_s.update({name: env.now})))

    for name in ("a", "b", "c"):
        group.join(name, 40 * GB, Tier.HOST)
    for name in ("c", "a"):
        submit(name, 1.0)
    env.run()
    start_s = env.now
    submit("a", first_s)
    submit("b", 5.0)
    env.run()
    return ends_s["b"] - start_s, group.residency._rates.estimate_s((Tier.HOST, Tier.DEVICE), 40 * GB), group


def test_who_is_next_comes_beside_the_call_that_runs() -> None:
    end_s, load_s, group = staged(10.0, 100 * GB)
    assert 0 < load_s < 10
    assert end_s == pytest.approx(10 + 5)
    assert set(group.residency.resident) == {"a", "b"}  # Nobody waited for c.


def test_what_is_left_of_a_move_as_the_turn_comes_is_setup() -> None:
    end_s, load_s, _ = staged(1.0, 100 * GB)
    assert end_s == pytest.approx(load_s + 5)


def test_who_leaves_for_it_is_written_first_if_it_changed() -> None:
    end_s, load_s, group = staged(1.0, 100 * GB, Role.TRAIN)
    write_s = group.residency._rates.estimate_s((Tier.DEVICE, Tier.HOST), 40 * GB)
    assert end_s == pytest.approx(write_s + load_s + 5)


def test_nobody_comes_where_there_is_room_for_one() -> None:
    end_s, load_s, group = staged(10.0, 50 * GB)
    assert end_s == pytest.approx(10 + load_s + 5)
    assert group.residency.resident == ("b",)
