import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.tasks.phase_clock import MIN_SPAN_S, PhaseClock

START_S = 1000.0
episodes = st.lists(
    st.lists(st.tuples(st.sampled_from(["rollout", "environment"]), st.floats(0.0, 0.3)), min_size=1, max_size=6),
    min_size=1,
    max_size=6,
)
"""For each episode its phases and how long they last; all begin at `START_S`."""


def changes_of(phases: list[tuple[str, float]]) -> list[tuple[float, str, int]]:
    times = list(itertools.accumulate((length_s for _, length_s in phases), initial=START_S))
    begun = [(start_s, phase, 1) for (phase, _), start_s in zip(phases, times, strict=False)]
    ended = [(end_s, phase, -1) for (phase, _), end_s in zip(phases, times[1:], strict=True)]
    return begun + ended


def played(all_phases: list[list[tuple[str, float]]]) -> tuple[PhaseClock, float]:
    """A clock that has seen the episodes, and when the last of them ended."""
    clock = PhaseClock(START_S)
    changes = sorted((c for phases in all_phases for c in changes_of(phases)), key=lambda change: (change[0], -change[2]))
    for now_s, phase, change in changes:
        (clock.generating if phase == "rollout" else clock.in_environment)(change, now_s)
    return clock, changes[-1][0]


@given(episodes, st.floats(0.0, 1.0))
def test_spans_follow_each_other_from_start_to_end(all_phases: list[list[tuple[str, float]]], rest_s: float) -> None:
    clock, last_s = played(all_phases)
    spans = clock.finish(last_s + rest_s)
    edges = [edge for _, start_s, end_s in spans for edge in (start_s, end_s)]
    assert edges == sorted(edges)
    assert edges[1:-1:2] == edges[2::2], "no gap"
    assert all(left[0] != right[0] for left, right in itertools.pairwise(spans))
    assert all(end_s - start_s >= MIN_SPAN_S for _, start_s, end_s in spans[1:])
    if last_s + rest_s > START_S:
        assert (edges[0], edges[-1]) == (START_S, last_s + rest_s)


@given(episodes)
def test_totals_are_exact_however_short_the_phases(all_phases: list[list[tuple[str, float]]]) -> None:
    clock, last_s = played(all_phases)
    spans = clock.finish(last_s)
    total_s = clock.total_s("rollout") + clock.total_s("environment")
    assert math.isclose(total_s, last_s - START_S, abs_tol=1e-6)
    assert math.isclose(total_s, sum(end_s - start_s for _, start_s, end_s in spans), abs_tol=1e-6)
    assert math.isclose(clock.total_s("rollout"), _covered_s(all_phases, "rollout"), abs_tol=1e-6)


def _covered_s(all_phases: list[list[tuple[str, float]]], wanted: str) -> float:
    """How long at least one episode was in the phase, told by a plain sweep."""
    changes = [c for phases in all_phases for c in changes_of(phases) if c[1] == wanted]
    covered_s, count, since_s = 0.0, 0, 0.0
    for now_s, _, change in sorted(changes, key=lambda c: (c[0], -c[2])):
        since_s = now_s if count == 0 else since_s
        count += change
        covered_s += now_s - since_s if count == 0 else 0.0
    return covered_s


def test_an_episode_that_generates_counts_as_rollout_though_it_is_under_way_in_its_environment() -> None:
    clock = PhaseClock(0.0)
    clock.in_environment(1, 0.0)
    clock.generating(1, 1.0)
    clock.generating(-1, 3.0)
    clock.in_environment(-1, 4.0)
    assert clock.finish(4.0) == [("environment", 0.0, 1.0), ("rollout", 1.0, 3.0), ("environment", 3.0, 4.0)]
    assert (clock.total_s("rollout"), clock.total_s("environment")) == (2.0, 2.0)


def test_a_short_span_is_joined_to_the_one_before() -> None:
    clock = PhaseClock(0.0)
    clock.in_environment(1, 0.0)
    for start_s in (1.0, 2.0):
        clock.generating(1, start_s)
        clock.generating(-1, start_s + MIN_SPAN_S / 2)
    assert clock.finish(3.0) == [("environment", 0.0, 3.0)]
    assert math.isclose(clock.total_s("rollout"), MIN_SPAN_S)


def test_nothing_happened_gives_no_spans() -> None:
    assert PhaseClock(5.0).finish(9.0) == []


def test_finishing_twice_changes_nothing() -> None:
    clock = PhaseClock(0.0)
    clock.generating(1, 0.0)
    assert clock.finish(1.0) == clock.finish(2.0) == [("rollout", 0.0, 1.0)]


def test_a_clock_that_is_set_back_stands_still() -> None:
    clock = PhaseClock(10.0)
    clock.generating(1, 10.0)
    clock.in_environment(1, 10.0)
    clock.generating(-1, 4.0)
    assert clock.finish(11.0) == [("environment", 10.0, 11.0)]


def test_ending_more_than_began_is_an_error() -> None:
    with pytest.raises(ValueError, match="ended more than began"):
        PhaseClock(0.0).generating(-1, 0.0)


@given(st.lists(st.floats(START_S, START_S + 100), max_size=50))
def test_the_tail_is_the_time_of_the_last_tenth_of_the_generations(ends_s: list[float]) -> None:
    clock = PhaseClock(START_S)
    clock.generating(len(ends_s), START_S)
    for end_s in sorted(ends_s):
        clock.generating(-1, end_s)
    if not ends_s:
        assert clock.tail_s is None
        return
    others = sorted(ends_s)[: -max(1, len(ends_s) // 10)]
    assert clock.tail_s == max(ends_s) - max(others, default=max(ends_s))
