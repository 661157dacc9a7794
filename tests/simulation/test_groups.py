"""A worker group in simulated time against formulas and an obvious simulation of its own."""

import random
from collections.abc import Callable
from functools import partial
from itertools import accumulate
from typing import Any

import pytest
import simpy
from hypothesis import given
from hypothesis import strategies as st

from plait.placement.job import Role
from plait.residency.tier import Tier
from plait.scheduling.function_call import FunctionCall
from plait.scheduling.hrrs import Hrrs
from plait.scheduling.orders import Fifo, Order
from plait.scheduling.service_times import ServiceTimes
from plait.simulation.call_stretch import CallStretch
from plait.simulation.costs import RooflineCosts
from plait.simulation.group_meter import ClusterMeter, GroupMeter
from plait.simulation.group_residency import CostRates, GroupResidency
from plait.simulation.groups import SimulatedGroup
from plait.simulation.hardware import accelerator
from plait.simulation.model_shapes import model_shape

GB = 10**9
SERVICES_S = (1.0, 2.0, 9.0)
WEIGHTS = (0.6, 0.3, 0.1)
LOAD = 0.7


def arrivals(num_calls: int, seed: int) -> list[tuple[float, float]]:
    """(arrival, service): Poisson, at LOAD."""
    rng = random.Random(seed)
    mean_s = sum(s * w for s, w in zip(SERVICES_S, WEIGHTS, strict=True))
    now_s, found = 0.0, []
    for _ in range(num_calls):
        now_s += rng.expovariate(LOAD / mean_s)
        found.append((now_s, rng.choices(SERVICES_S, WEIGHTS)[0]))
    return found


def group_of(order: Order, budget_bytes: int = 100 * GB) -> tuple[simpy.Environment, SimulatedGroup, ClusterMeter]:
    env, meter = simpy.Environment(), ClusterMeter()
    costs = RooflineCosts(accelerator("H100"), model_shape("Qwen3-8B"), 8)
    residency = GroupResidency(budget_bytes, CostRates(costs, 2.0))
    return env, SimulatedGroup(env, "g", residency, order, GroupMeter(meter, {"row": 8}, 0.0)), meter


def waits_of(order: Order, calls: list[tuple[float, float]]) -> list[float]:
    """One deployment, a stream for each call, and a function for each service time: expectations are exact."""
    env, group, _ = group_of(order)
    group.join("d", 0, Tier.HOST)
    waits = [0.0] * len(calls)

    def submit(index: int) -> None:
        arrival_s, service_s = calls[index]
        call = FunctionCall(str(index), "d", f"f{service_s}", str(index), 0, arrival_s)
        group.submit(CallStretch(call, Role.ROLLOUT, service_s, lambda _: ended(index)))

    def ended(index: int) -> None:
        waits[index] = env.now - calls[index][0] - calls[index][1]

    for warm, service_s in enumerate(SERVICES_S):
        group.services.observe(FunctionCall(f"w{warm}", "d", f"f{service_s}", "w", 0, 0.0), service_s)
    for index, (arrival_s, _) in enumerate(calls):
        env.timeout(arrival_s).callbacks.append(partial(_told, submit, index))
    env.run()
    return waits


def _told(what: Callable[[Any], None], value: Any, _: object) -> None:
    what(value)


def reference_waits(calls: list[tuple[float, float]]) -> list[float]:
    """Highest response ratio next, looking at everything that waits each time."""
    waits, now_s, following = [0.0] * len(calls), 0.0, 0
    waiting: list[int] = []
    for _ in calls:
        if not waiting:
            now_s = max(now_s, calls[following][0])
        while following < len(calls) and calls[following][0] <= now_s:
            waiting.append(following)
            following += 1
        chosen = max(waiting, key=lambda index: (1 + (now_s - calls[index][0]) / calls[index][1], -index))
        waiting.remove(chosen)
        waits[chosen] = now_s - calls[chosen][0]
        now_s += calls[chosen][1]
    return waits


def test_fifo_waits_as_pollaczek_and_khinchine_say() -> None:
    calls = arrivals(40_000, seed=1)
    waits = waits_of(Fifo(), calls)
    mean_s, second = (sum(s**power * w for s, w in zip(SERVICES_S, WEIGHTS, strict=True)) for power in (1, 2))
    rate = LOAD / mean_s
    expected_s = rate * second / (2 * (1 - LOAD))
    assert sum(waits) / len(waits) == pytest.approx(expected_s, rel=0.06)


def test_highest_response_ratio_next_waits_as_in_an_obvious_simulation() -> None:
    calls = arrivals(4_000, seed=2)
    found = waits_of(Hrrs(lookahead=0, max_score=1e12), calls)
    assert found == pytest.approx(reference_waits(calls), abs=1e-6)
    first_come = waits_of(Fifo(), calls)
    assert sum(found) < sum(first_come)
    # The conservation law of M/G/1 (Kleinrock 1965): who goes first changes nobody's wait for work, weighed by the work.
    assert sum(wait * s for wait, (_, s) in zip(found, calls, strict=True)) == pytest.approx(
        sum(wait * s for wait, (_, s) in zip(first_come, calls, strict=True))
    )


def test_a_switch_takes_what_the_cost_model_says_for_the_tiers() -> None:
    env, group, meter = group_of(Fifo(), budget_bytes=100 * GB)
    group.join("a", 80 * GB, Tier.DISK)
    group.join("b", 60 * GB, Tier.DISK)
    device, done_s = accelerator("H100"), []

    def submit(number: int, deployment: str, role: Role) -> None:
        call = FunctionCall(str(number), deployment, "f", deployment, 0, env.now)
        group.submit(CallStretch(call, role, 10.0, lambda _: done_s.append(env.now)))

    for number, (deployment, role) in enumerate([("a", Role.TRAIN), ("b", Role.ROLLOUT), ("a", Role.TRAIN), ("b", Role.ROLLOUT)]):
        submit(number, deployment, role)
    env.run()
    disk, host = 8 * 0.8 * device.disk_bytes_per_s, 8 * 0.8 * device.host_bytes_per_s
    first_s = 2 + 80 * GB / disk  # From disk, nothing to move out.
    second_s = 2 + 60 * GB / disk + 80 * GB / host  # What was trained has to be written.
    third_s = 2 + 80 * GB / host  # What was only read has a copy in host memory.
    fourth_s = 2 + 60 * GB / host + 80 * GB / host
    ends = [first_s + 10, second_s + 10, third_s + 10, fourth_s + 10]
    assert done_s == pytest.approx([sum(ends[: index + 1]) for index in range(4)])
    assert meter.num_switches == 3
    assert meter.setup_device_s == pytest.approx(8 * (first_s + second_s + third_s + fourth_s))


def test_what_fits_together_stays_and_switches_for_nothing() -> None:
    env, group, meter = group_of(Fifo(), budget_bytes=150 * GB)
    for name in ("a", "b"):
        group.join(name, 70 * GB, Tier.HOST)
    for number in range(20):
        call = FunctionCall(str(number), "ab"[number % 2], "f", "s", 0, 0.0)
        group.submit(CallStretch(call, Role.TRAIN, 1.0, lambda _: None))
    env.run()
    assert meter.num_switches == 19
    load_s = group.residency._rates.estimate_s((Tier.HOST, Tier.DEVICE), 70 * GB)
    assert env.now == pytest.approx(20 + load_s + load_s - 1)  # The second comes beside the first call.


def test_a_withdrawn_call_frees_its_group() -> None:
    env, group, meter = group_of(Fifo())
    done: list[str] = []
    for name in ("a", "b", "c"):
        group.join(name, 0, Tier.HOST)
        call = FunctionCall(name, name, "f", "s", 0, 0.0)
        group.submit(CallStretch(call, Role.TRAIN, 10.0, partial(_told, done.append, name)))
    env.run(until=4.0)
    assert group.withdraw("b") == (0, 0.0)
    assert group.withdraw("a") == (0, pytest.approx(4.0))
    env.run()
    assert done == ["c"]
    assert env.now == pytest.approx(14.0)
    assert meter.lost_device_s == pytest.approx(8 * 4.0)
    assert meter.service_device_s[Role.TRAIN] == pytest.approx(8 * 10.0)


def cut_at(time_s: float) -> tuple[list[tuple[str, int, float]], SimulatedGroup, ClusterMeter]:
    """Five calls of 10 s, 2 s apart, of which the last is another function; another job's call comes meanwhile."""
    env, group, meter = group_of(Fifo())
    for name in ("a", "b"):
        group.join(name, 0, Tier.HOST)
    ends: list[tuple[str, int, float]] = []
    first, last = (FunctionCall("a", "a", name, "s", 0, 0.0) for name in ("f", "last"))
    stretch = CallStretch(first, Role.TRAIN, 10.0, lambda num: ends.append(("a", num, env.now)), 5, 2.0, 1.0, last, 5)
    group.submit(stretch)
    env.run(until=time_s)
    call = FunctionCall("b", "b", "f", "s", 0, time_s)
    group.submit(CallStretch(call, Role.TRAIN, 3.0, lambda num: ends.append(("b", num, env.now))))
    env.run()
    assert meter.num_calls == meter.call_waits.count == 1 + ends[0][1]
    assert meter.service_device_s[Role.TRAIN] == pytest.approx(8 * (3.0 + 10.0 * ends[0][1]))
    return ends, group, meter


def test_a_stretch_is_cut_when_another_call_comes() -> None:
    """At 15 s the second call runs, and ends at 22 s; then the other job is served."""
    ends, group, _ = cut_at(15.0)
    assert ends == [("a", 2, 22.0), ("b", 1, 25.0)]
    assert group.services.estimate_s(FunctionCall("x", "a", "f", "s", 0, 0.0)) == pytest.approx(10.0)
    assert group.services.estimate_s(FunctionCall("x", "c", "last", "s", 0, 0.0)) == 1.0  # It has not run.


def test_a_call_that_comes_in_a_delay_of_a_stretch_is_served_at_once() -> None:
    ends, _, meter = cut_at(23.0)
    assert ends == [("a", 2, 23.0), ("b", 1, 26.0)]
    assert meter.call_waits.largest == 0.0


def test_a_stretch_whose_last_call_runs_is_whole() -> None:
    ends, group, _ = cut_at(50.0)
    assert ends == [("a", 5, 58.0), ("b", 1, 61.0)]
    assert group.services.estimate_s(FunctionCall("x", "a", "last", "s", 0, 0.0)) == pytest.approx(10.0)


def test_calls_of_a_stretch_are_measured_as_often_as_they_ran() -> None:
    env, group, _ = group_of(Fifo())
    group.join("a", 0, Tier.HOST)
    one_by_one, call = ServiceTimes(), FunctionCall("a", "a", "f", "s", 0, 0.0)
    for number, (num_calls, call_s) in enumerate(((4, 10.0), (1, 30.0))):
        run = FunctionCall(str(number), "a", "f", "s", 0, env.now)
        group.submit(CallStretch(run, Role.TRAIN, call_s, lambda _: None, num_calls))
        env.run()
        for _ in range(num_calls):
            one_by_one.observe(call, call_s)
    assert group.services.estimate_s(call) == pytest.approx(one_by_one.estimate_s(call))


@given(
    call_s=st.floats(0.1, 10), delay_s=st.sampled_from([0.0, 1.5]), num_calls=st.integers(1, 5), share=st.floats(-0.1, 1.1)
)  # fmt: skip
def test_how_far_a_stretch_is(call_s: float, delay_s: float, num_calls: int, share: float) -> None:
    call = FunctionCall("a", "a", "f", "s", 0, 0.0)
    stretch = CallStretch(call, Role.TRAIN, call_s, lambda _: None, num_calls, delay_s)
    now_s = 100.0 + share * (stretch.end_s(100.0) - 100.0)
    num_ended, ran_s, idle_since_s = stretch.progress(100.0, now_s)
    starts = list(accumulate([call_s] * (num_calls - 1), lambda start_s, call_s: start_s + call_s + delay_s, initial=100.0))
    assert stretch.end_s(100.0) == starts[-1] + call_s
    assert num_ended == sum(start + call_s <= now_s for start in starts)
    done_s = sum(max(0.0, min(call_s, now_s - start)) for start in starts)
    assert num_ended * call_s + ran_s == pytest.approx(done_s, abs=1e-6)
    is_idle = num_ended > 0 and (num_ended == num_calls or now_s < starts[num_ended])
    assert (idle_since_s is not None) == is_idle
