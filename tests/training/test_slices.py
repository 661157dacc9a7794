"""The order of slices, on whole schedules of calls that arrive over time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.training.slices import PASSING_FACTOR, SliceQueue

Calls = list[tuple[int, int]]
"""(slices after which it arrives, its own slices), in order of arrival; the call's name is its place."""

calls = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 40)), min_size=1, max_size=12).map(
    lambda found: sorted(found, key=lambda call: call[0])
)


def play(found: Calls) -> tuple[list[int], dict[int, int]]:
    """The call of each slice, and after how many slices each call was complete. An empty call takes one turn."""
    queue, order, ends = SliceQueue(), list[int](), dict[int, int]()
    left = {number: max(1, num_slices) for number, (_, num_slices) in enumerate(found)}
    waiting = list(range(len(found)))
    while waiting or len(queue):
        while waiting and (found[waiting[0]][0] <= len(order) or not len(queue)):
            queue.add(str(waiting[0]), found[waiting[0]][1])
            waiting.pop(0)
        number = int(queue.next())
        queue.ran(str(number))
        order.append(number)
        left[number] -= 1
        if left[number] == 0:
            queue.remove(str(number))
            ends[number] = len(order)
    return order, ends


@given(calls)
def test_every_call_gets_each_of_its_slices_and_ends(found: Calls) -> None:
    order, ends = play(found)
    assert len(ends) == len(found)
    assert all(order.count(number) == max(1, num_slices) for number, (_, num_slices) in enumerate(found))


@given(calls)
def test_the_first_gets_at_least_every_second_slice(found: Calls) -> None:
    order, ends = play(found)
    for place, number in enumerate(order[:-1]):
        oldest = min(other for other in ends if ends[other] > place)
        assert number == oldest or order[place + 1] == oldest, "the oldest was passed twice in a row"


@given(st.integers(1, 10), st.integers(1, 200))
def test_a_short_calls_wait_does_not_depend_on_how_long_the_long_one_is(short: int, extra: int) -> None:
    long = 3 + PASSING_FACTOR * short + extra
    _, ends = play([(0, long), (3, short)])
    assert ends[1] - 3 <= 2 * short + 1
    assert ends[0] == long + short


@given(st.lists(st.integers(20, 60), min_size=1, max_size=5), st.integers(0, 30))
def test_one_slice_among_many_long_calls_waits_for_one_other(lengths: list[int], arrival: int) -> None:
    found = [(0, length) for length in lengths]
    arrival = min(arrival, sum(lengths) - 2)
    _, ends = play([*found, (arrival, 1)])
    assert ends[len(lengths)] - arrival <= 2


def test_calls_of_a_size_are_served_in_order() -> None:
    order, _ = play([(0, 4), (0, 3), (0, 4)])
    assert order == [0] * 4 + [1] * 3 + [2] * 4


def test_a_steady_stream_of_short_calls_at_most_doubles_a_long_one() -> None:
    _, ends = play([(0, 30), *((arrival, 1) for arrival in range(120))])
    assert ends[0] <= 60


def test_a_call_that_is_dropped_no_longer_counts() -> None:
    queue = SliceQueue()
    queue.add("a", 9)
    queue.add("b", 1)
    assert queue.next() == "b"
    queue.remove("b")
    queue.remove("b")
    assert [queue.next(), len(queue)] == ["a", 1]


def test_a_task_has_one_call_at_a_time() -> None:
    queue = SliceQueue()
    queue.add("a", 1)
    with pytest.raises(ValueError, match="'a' is in the queue already"):
        queue.add("a", 1)


def test_an_empty_queue_has_no_next() -> None:
    with pytest.raises(LookupError):
        SliceQueue().next()
