"""Tenants share slices, on whole schedules of calls that arrive over time."""

import math
from dataclasses import dataclass
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.training.slices import SliceQueue
from plait.training.tenant_slices import TenantSlices

WEIGHTS = {"a": 1.0, "b": 1.0, "c": 2.0, "d": 5.0, "e": 0.5}


@dataclass(frozen=True)
class Arrival:
    time: int
    """In slices."""
    tenant: str
    num_slices: int


@dataclass(frozen=True)
class Slice:
    tenant: str
    waiting: frozenset[str]
    """Tenants with a call, the one that is served among them."""
    num_waited: int


def arrivals(tenants: str, most: int = 12) -> st.SearchStrategy[list[Arrival]]:
    one = st.builds(Arrival, st.integers(0, 60), st.sampled_from(tenants), st.integers(1, 20))
    return st.lists(one, min_size=1, max_size=most).map(lambda found: sorted(found, key=lambda arrival: arrival.time))


def play(found: list[Arrival], weights: dict[str, float]) -> list[Slice]:
    """Every slice from the first to the last; where nobody waits, time goes on to the next arrival."""
    queue, slices, left = TenantSlices(), list[Slice](), dict[str, int]()
    for tenant, weight in weights.items():
        queue.set_weight(tenant, weight)
    waiting = list(enumerate(found))
    time = 0
    while waiting or len(queue):
        time = time if len(queue) else max(time, waiting[0][1].time)
        while waiting and waiting[0][1].time <= time:
            number, arrival = waiting.pop(0)
            queue.add(f"{arrival.tenant}{number}", arrival.num_slices, arrival.tenant)
            left[f"{arrival.tenant}{number}"] = arrival.num_slices
        name = queue.next()
        slices.append(Slice(name[0], frozenset(other[0] for other in left), queue.num_waited(name)))
        queue.ran(name)
        left[name] -= 1
        if not left[name]:
            queue.remove(name)
            del left[name]
        time += 1
    return slices


def waits(slices: list[Slice]) -> list[dict[str, int]]:
    """For every stretch in which a tenant waits for a slice: how many each other one got."""
    found, running = list[dict[str, int]](), dict[str, dict[str, int]]()
    for slice_ in slices:
        running = {tenant: running.get(tenant, {}) for tenant in slice_.waiting}
        found.append(running.pop(slice_.tenant))
        for others in running.values():
            others[slice_.tenant] = others.get(slice_.tenant, 0) + 1
    return found


@given(arrivals("abcde"))
def test_every_call_gets_each_of_its_slices(found: list[Arrival]) -> None:
    slices = play(found, WEIGHTS)
    for tenant in WEIGHTS:
        assert sum(s.tenant == tenant for s in slices) == sum(a.num_slices for a in found if a.tenant == tenant)


@given(arrivals("abcde"))
def test_with_equal_weights_nobody_waits_for_more_than_one_slice_of_each_other(found: list[Arrival]) -> None:
    for wait in waits(play(found, dict.fromkeys(WEIGHTS, 1.0))):
        assert all(count <= 1 for count in wait.values())


@given(arrivals("abcde"))
def test_another_gets_at_most_its_share_and_one_slice_between_two_of_a_tenants(found: list[Arrival]) -> None:
    slices = play(found, WEIGHTS)
    for slice_, wait in zip(slices, waits(slices), strict=True):
        for other, count in wait.items():
            assert count <= WEIGHTS[other] / WEIGHTS[slice_.tenant] + 1


@given(arrivals("bcde"), st.integers(0, 40))
def test_who_comes_anew_waits_for_one_slice_of_each_other_whatever_the_weights(found: list[Arrival], time: int) -> None:
    mixed = sorted([*found, Arrival(time, "a", 1)], key=lambda arrival: arrival.time)
    slices = play(mixed, WEIGHTS)
    (wait,) = [wait for slice_, wait in zip(slices, waits(slices), strict=True) if slice_.tenant == "a"]
    assert all(count <= 1 for count in wait.values())


@given(arrivals("abcde"))
def test_it_tells_how_long_a_tenant_has_waited(found: list[Arrival]) -> None:
    slices = play(found, WEIGHTS)
    assert [slice_.num_waited for slice_ in slices] == [sum(wait.values()) for wait in waits(slices)]


@given(arrivals("a"))
def test_one_tenant_alone_is_served_as_by_a_slice_queue(found: list[Arrival]) -> None:
    plain, shared = SliceQueue(), TenantSlices()
    for number, arrival in enumerate(found):
        plain.add(str(number), arrival.num_slices)
        shared.add(str(number), arrival.num_slices, "a")
    for _ in range(sum(arrival.num_slices for arrival in found)):
        name = plain.next()
        assert shared.next() == name
        plain.ran(name)
        shared.ran(name)
        if not plain._left[name]:
            plain.remove(name)
            shared.remove(name)
    assert len(shared) == 0


@given(st.dictionaries(st.sampled_from("abc"), st.integers(1, 6), min_size=2), st.integers(20, 80))
def test_tenants_that_always_wait_get_their_shares(weights: dict[str, int], num_slices: int) -> None:
    found = [Arrival(0, tenant, 200) for tenant in weights]
    slices = play(found, {tenant: float(weight) for tenant, weight in weights.items()})[:num_slices]
    got = {tenant: sum(s.tenant == tenant for s in slices) for tenant in weights}
    for one in weights:
        for other in weights:
            gap = abs(Fraction(got[one], weights[one]) - Fraction(got[other], weights[other]))
            assert gap <= Fraction(1, weights[one]) + Fraction(1, weights[other])


def test_an_idle_tenant_saves_up_nothing() -> None:
    slices = play([Arrival(0, "a", 50), Arrival(30, "b", 10)], {"a": 1.0, "b": 1.0})
    assert [s.tenant for s in slices[30:40]] == ["b", "a"] * 5 or [s.tenant for s in slices[30:40]] == ["a", "b"] * 5


@pytest.mark.parametrize("weight", [0.0, -1.0, math.inf, math.nan])
def test_a_weight_is_finite_and_positive(weight: float) -> None:
    with pytest.raises(ValueError, match="weight of tenant 'a'"):
        TenantSlices().set_weight("a", weight)


def test_a_name_is_there_once_and_an_empty_queue_has_no_next() -> None:
    queue = TenantSlices()
    with pytest.raises(LookupError):
        queue.next()
    queue.add("x", 1, "a")
    with pytest.raises(ValueError, match="'x' is in the queue already"):
        queue.add("x", 1, "b")
    queue.remove("x")
    queue.remove("x")
    assert len(queue) == 0
