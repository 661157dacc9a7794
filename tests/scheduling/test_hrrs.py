"""What the docstring promises about overtaking, for any load; and that FIFO on ties, and the cut-off, are what they say."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plait.scheduling.function_call import FunctionCall
from plait.scheduling.hrrs import Hrrs
from plait.types.errors import ConfigError
from tests.scheduling.overtaking import Passing, Record, Step, Trial, Watched

LITTLE = 1e-9
"""Rounding."""
gaps_s = st.sampled_from((0.0, 0.0, 0.1, 1.0, 5.0))
known = st.sampled_from((1, 4, 16, 64)).map(lambda size: (size, size / 4))
"""Sizes whose times are as expected once measured."""
unknown = st.tuples(st.sampled_from((1, 16, 64)), st.sampled_from((0.0, 0.01, 0.5, 3.0, 40.0)))
steps = st.builds(lambda gap_s, time: Step(gap_s, *time), gaps_s, known | unknown)
keys = st.tuples(st.sampled_from("abc"), st.sampled_from("xyz"))
loads = st.dictionaries(keys, st.lists(steps, min_size=1, max_size=12), min_size=2, max_size=7)
setups_s = st.sampled_from((0.0, 0.5, 4.0))
orders = st.builds(Watched, st.sampled_from((0.0, 0.3, 1.0, 4.0)), st.sampled_from((1.5, 3.0, 100.0)))
each = settings(max_examples=120, deadline=None)


def call_of(number: int, arrival_s: float, deployment: str = "a", size_tokens: int = 1) -> FunctionCall:
    return FunctionCall(str(number), deployment, "forward", str(number), size_tokens, arrival_s)


Load = dict[tuple[str, str], list[Step]]


@each
@given(loads, setups_s, orders, st.booleans())
def test_bounds_of_overtaking(load: Load, setup_s: float, order: Watched, is_closed: bool) -> None:
    for record in Trial(load, order, setup_s, is_closed).run():
        assert_only_what_is_shorter_and_waited_as_much_for_its_length(record)
        assert_nothing_after_the_cut_off(record, order.max_score)
        if is_closed:
            assert_each_stream_only_by_a_logarithm(record)


def assert_only_what_is_shorter_and_waited_as_much_for_its_length(record: Record) -> None:
    for passing in record.passings:
        waited_s = passing.start_s - record.call.arrival_s
        at_its_arrival_s = passing.call.arrival_s - record.call.arrival_s
        assert passing.cost_s < record.cost_s
        longest_s = waited_s + record.ahead_s
        assert passing.cost_s <= record.cost_s * (longest_s - at_its_arrival_s) / longest_s + LITTLE


def assert_nothing_after_the_cut_off(record: Record, max_score: float) -> None:
    most_s = (max_score - 1) * record.cost_s + LITTLE
    assert all(passing.start_s - record.call.arrival_s < most_s for passing in record.passings)
    assert sum(passing.end_s - passing.start_s for passing in record.passings[:-1]) < most_s


def assert_each_stream_only_by_a_logarithm(record: Record) -> None:
    streams = {(passing.call.deployment, passing.call.stream) for passing in record.passings}
    for key in streams:
        mine = [passing for passing in record.passings if (passing.call.deployment, passing.call.stream) == key]
        assert sum(passing.cost_s for passing in mine) <= allowed_s(record, mine) + LITTLE


def allowed_s(record: Record, passings: list[Passing]) -> float:
    """Of one stream."""
    wait_s = record.start_s - record.call.arrival_s
    shortest_s = min(passing.end_s - passing.start_s for passing in passings)
    first_ended_s = passings[0].end_s - record.call.arrival_s
    if len(passings) == 1:
        return record.cost_s
    if record.ahead_s == 0:
        return record.cost_s * (1 + math.log(wait_s / max(first_ended_s, LITTLE)))
    grown = math.log((wait_s + record.ahead_s) / (first_ended_s + record.ahead_s))
    return record.cost_s * (2 + (1 + record.ahead_s / max(shortest_s, LITTLE)) * grown)


@each
@given(
    st.dictionaries(keys, st.lists(st.builds(lambda gap_s, time: Step(gap_s, *time), gaps_s, known), max_size=12), min_size=2),
    setups_s,
    orders,
)
def test_the_wait_is_bounded_by_the_number_of_streams(load: Load, setup_s: float, order: Watched) -> None:
    """With times that are as expected."""
    trial = Trial(load, order, setup_s, is_closed=True)
    for size in (1, 4, 16, 64):
        for deployment in "abc":
            trial.services.observe(call_of(0, 0.0, deployment, size), size / 4)
    for record in trial.run():
        wait_s = record.start_s - record.call.arrival_s
        in_service_s = wait_s - record.before_s - sum(passing.end_s - passing.start_s for passing in record.passings)
        assert in_service_s >= -LITTLE, "the group never idles while a call waits"
        shortest_s, ahead_s = 1 / 4, record.ahead_s
        grown = math.log(max((wait_s + ahead_s) / (shortest_s + ahead_s), 1.0))
        of_each_s = record.cost_s * (2 + (1 + ahead_s / shortest_s) * grown)
        assert wait_s <= record.before_s + in_service_s + len(load) * of_each_s + LITTLE


def test_two_that_never_stop_let_a_long_call_pass_after_its_own_length() -> None:
    """They take turns, so each has waited as long as a call takes: 1 / 1 against t / 100."""
    busy = [Step(0.0, 4, 1.0)] * 400
    load = {("a", "x"): busy, ("a", "y"): busy, ("a", "long"): [Step(0.5, 400, 100.0)]}
    trial = Trial(load, Watched(lookahead=0), 0.0, is_closed=True)
    trial.services.observe(call_of(0, 0.0, size_tokens=400), 100.0)
    trial.services.observe(call_of(0, 0.0, size_tokens=4), 1.0)
    record = next(record for record in trial.run() if record.call.stream == "long")
    assert 100 - 2 <= len(record.passings) <= 100


def test_a_flood_of_short_calls_holds_a_long_one_up_to_the_cut_off() -> None:
    flood = [Step(0.5, 4, 1.0)] * 400
    load = {("a", "flood"): flood, ("b", "long"): [Step(1.0, 40, 10.0)]}
    held_s = {}
    for max_score in (5.0, 20.0, 1000.0):
        trial = Trial(load, Watched(0, max_score), 0.0, is_closed=False)
        trial.services.observe(call_of(0, 0.0, "b", 40), 10.0)
        trial.services.observe(call_of(0, 0.0, "a", 4), 1.0)
        record = next(record for record in trial.run() if record.call.stream == "long")
        held_s[max_score] = record.start_s - record.call.arrival_s
    assert held_s[5.0] == pytest.approx(40.0, abs=1.0)
    assert held_s[20.0] == pytest.approx(190.0, abs=1.0)
    assert held_s[1000.0] == pytest.approx(399.0, abs=1.0), "until the flood has ended"


def test_ties_go_to_the_first() -> None:
    heads = [call_of(1, 0.0), call_of(2, 0.0, "b"), call_of(3, 1.0)]
    assert Hrrs(0).pick(heads, 0.0, lambda call: 1.0, lambda name: 0.0) == heads[0]
    assert Hrrs(0).pick(heads, 5.0, lambda call: 1.0, lambda name: 0.0) == heads[0]
    assert Hrrs(0, 3.0).pick(heads, 5.0, lambda call: float(call == heads[0]), lambda name: 0.0) == heads[0], "all at the cut-off"


def test_what_takes_no_time_goes_first_once_it_has_waited() -> None:
    heads = [call_of(1, 0.0), call_of(2, 1.0)]
    times = {"1": 1.0, "2": 0.0}
    assert Hrrs(0).pick(heads, 1.0, lambda call: times[call.call_id], lambda name: 0.0) == heads[0]
    assert Hrrs(0).pick(heads, 1.5, lambda call: times[call.call_id], lambda name: 0.0) == heads[1]


def test_looking_ahead_what_is_short_need_not_have_waited() -> None:
    heads = [call_of(1, 0.0), call_of(2, 5.0)]
    times = {"1": 9.0, "2": 1.0}
    for lookahead, picked in ((0.0, 0), (0.1, 0), (0.2, 1), (4.0, 1)):
        assert Hrrs(lookahead).pick(heads, 5.0, lambda call: times[call.call_id], lambda name: 0.0) == heads[picked]


@pytest.mark.parametrize("max_score", [1.0, 0.0, math.inf, math.nan])
def test_a_cut_off_without_a_sense_is_refused(max_score: float) -> None:
    with pytest.raises(ConfigError, match="max_score"):
        Hrrs(max_score=max_score)


@pytest.mark.parametrize("lookahead", [-1.0, math.inf, math.nan])
def test_a_lookahead_without_a_sense_is_refused(lookahead: float) -> None:
    with pytest.raises(ConfigError, match="lookahead"):
        Hrrs(lookahead)
