import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plait.scheduling.function_call import FunctionCall
from plait.scheduling.moving_average import STEP, MovingAverage
from plait.scheduling.service_times import ServiceTimes, size_class
from plait.types.errors import PlaitError


def call_of(size_tokens: int = 8, deployment: str = "a", function: str = "forward") -> FunctionCall:
    return FunctionCall("1", deployment, function, "s", size_tokens, 0.0)


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=30))
def test_a_moving_average_is_a_mean_and_then_exponential(values: list[float]) -> None:
    average = MovingAverage()
    for value in values:
        average.add(value)
    first = values[: round(1 / STEP)]
    expected = sum(first) / len(first)
    for value in values[len(first) :]:
        expected = (1 - STEP) * expected + STEP * value
    assert average.value == pytest.approx(expected, abs=1e-6)


@given(st.lists(st.tuples(st.floats(0, 1e6), st.integers(1, 9)), max_size=9))
def test_equal_calls_at_once_teach_the_same_as_one_by_one(values: list[tuple[float, int]]) -> None:
    at_once, one_by_one = ServiceTimes(), ServiceTimes()
    for service_s, count in values:
        at_once.observe(call_of(), service_s, count)
        for _ in range(count):
            one_by_one.observe(call_of(), service_s)
        assert at_once.estimate_s(call_of()) == one_by_one.estimate_s(call_of())


@given(st.integers(2, 2**70))
def test_two_classes_an_octave(size_tokens: int) -> None:
    assert size_class(2 * size_tokens) == size_class(size_tokens) + 2
    assert size_class(size_tokens + 1) - size_class(size_tokens) in (0, 1)
    octave = 2 ** (size_tokens.bit_length() - 1)
    assert size_class(size_tokens) == size_class(octave) + (size_tokens >= octave * 1.5)


def test_the_smallest_sizes_have_classes_of_their_own() -> None:
    assert [size_class(size) for size in range(9)] == [0, 1, 2, 3, 4, 4, 5, 5, 6]


def test_each_kind_has_its_own_time() -> None:
    times = ServiceTimes()
    measured = {
        (deployment, function): float(place) for place, (deployment, function) in enumerate([("a", "f"), ("a", "g"), ("b", "f")])
    }
    for (deployment, function), service_s in measured.items():
        times.observe(call_of(8, deployment, function), service_s)
    for (deployment, function), service_s in measured.items():
        assert times.estimate_s(call_of(8, deployment, function)) == service_s
        assert times.estimate_s(call_of(11, deployment, function)) == service_s, "of the same class of size"


def test_what_was_never_measured_is_in_proportion_to_the_nearest_size() -> None:
    times = ServiceTimes()
    times.observe(call_of(1024), 10.0)
    times.observe(call_of(64), 2.0)
    assert times.estimate_s(call_of(2048)) == pytest.approx(20.0)
    assert times.estimate_s(call_of(32)) == pytest.approx(1.0)


def test_then_another_deployment_tells_then_nobody() -> None:
    times = ServiceTimes(default_s=7.0)
    assert times.estimate_s(call_of()) == 7.0
    times.observe(call_of(8, "b"), 3.0)
    assert times.estimate_s(call_of(16, "a")) == pytest.approx(6.0)
    assert times.estimate_s(call_of(8, "a", "backward")) == 7.0


class Apart:
    """Averages that nobody shares."""

    def __init__(self) -> None:
        self.own: dict[tuple[str, str, int], MovingAverage] = {}
        self.anywhere: dict[tuple[str, int], MovingAverage] = {}

    def observe(self, deployment: str, function: str, size: int, service_s: float, count: int) -> None:
        self.own.setdefault((deployment, function, size), MovingAverage()).add(service_s, count)
        self.anywhere.setdefault((function, size), MovingAverage()).add(service_s, count)


observed = st.tuples(st.sampled_from("abc"), st.sampled_from("fg"), st.sampled_from([8, 16]), st.floats(0, 100), st.integers(1, 7))


@settings(max_examples=40)
@given(st.lists(observed, max_size=12))
def test_what_the_only_deployment_measures_is_over_all_until_another_comes(found: list[tuple[str, str, int, float, int]]) -> None:
    times, apart = ServiceTimes(), Apart()
    for deployment, function, size, service_s, count in found:
        times.observe(call_of(size, deployment, function), service_s, count)
        apart.observe(deployment, function, size, service_s, count)
        for (name, of, at), average in apart.own.items():
            assert times.estimate_s(call_of(at, name, of)) == average.value
        for (of, at), average in apart.anywhere.items():
            assert times.estimate_s(call_of(at, "new", of)) == average.value


@pytest.mark.parametrize("service_s", [-0.1, math.inf, math.nan])
def test_times_without_a_sense_are_refused(service_s: float) -> None:
    times = ServiceTimes(default_s=7.0)
    with pytest.raises(PlaitError, match="service_s of call '1'"):
        times.observe(call_of(), service_s)
    assert times.estimate_s(call_of()) == 7.0
