"""The controller on throughput curves: tokens per second as a function of rows."""

from collections import Counter
from collections.abc import Callable
from math import log2
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plait.rollout.concurrency import MAX_STAY, MIN_GAIN, ConcurrencyController

Curve = Callable[[int], float]
SPAN_S = 0.5


def saturating(knee: int, rate: float = 1000.0, slope_after: float = 0.0) -> Curve:
    """In proportion to rows up to the knee; after it flat, or changing by `slope_after` for each doubling."""

    def curve(rows: int) -> float:
        return rate * min(1.0, rows / knee) * (1 + slope_after) ** max(0.0, log2(rows / knee))

    return curve


def feed(
    controller: ConcurrencyController, curve: Curve, num_spans: int, demand: int = 1000, noise: Random | None = None
) -> list[int]:
    """Run so many spans with as many rows as there are, and return the limits that held."""
    limits = []
    for _ in range(num_spans):
        rows = min(controller.limit, demand)
        rate = curve(rows) * (noise.uniform(0.97, 1.03) if noise else 1.0)
        limits.append(controller.limit)
        controller.observe(round(rate * SPAN_S), SPAN_S, rows)
    return limits


def usual(limits: list[int]) -> int:
    return Counter(limits).most_common(1)[0][0]


@pytest.mark.parametrize("slope_after", [0.0, -0.1, -0.5, 0.02], ids=["flat", "falling", "collapsing", "hardly rising"])
@pytest.mark.parametrize("start_rows", [1, 8, 64])
@pytest.mark.parametrize("knee", [1, 4, 16, 64])
def test_it_settles_at_the_knee_wherever_it_starts(knee: int, start_rows: int, slope_after: float) -> None:
    controller = ConcurrencyController(64, start_rows)
    curve = saturating(knee, slope_after=slope_after)
    feed(controller, curve, 150)
    limits = feed(controller, curve, 1000)
    assert usual(limits) == knee
    assert limits.count(knee) > 0.9 * len(limits)


def test_where_more_rows_always_help_it_reaches_the_most_and_soon() -> None:
    controller = ConcurrencyController(64)
    limits = feed(controller, lambda rows: 10.0 * rows**0.5, 40)
    assert limits[-1] == 64
    assert feed(controller, lambda rows: 10.0 * rows**0.5, 1000).count(64) > 950


@pytest.mark.parametrize(
    ("max_rows", "levels"), [(1, [1]), (2, [1, 2]), (48, [1, 2, 4, 8, 16, 32, 48]), (64, [1, 2, 4, 8, 16, 32, 64])]
)
def test_levels_are_powers_of_two_up_to_the_most(max_rows: int, levels: list[int]) -> None:
    controller = ConcurrencyController(max_rows)
    assert controller.levels == levels
    assert controller.limit == min(8, max_rows)


def test_it_does_not_oscillate_for_ever() -> None:
    controller, curve = ConcurrencyController(64), saturating(16)
    feed(controller, curve, 500)
    limits = feed(controller, curve, 20 * MAX_STAY)
    assert set(limits) <= {8, 16, 32}
    assert limits.count(16) > 0.97 * len(limits)


@given(st.integers(0, 1000))
@settings(max_examples=20, deadline=None)
def test_noise_does_not_drive_it_away(seed: int) -> None:
    controller, curve = ConcurrencyController(64), saturating(16)
    limits = feed(controller, curve, 1500, noise=Random(seed))[300:]
    assert limits.count(16) > 0.75 * len(limits)


@pytest.mark.parametrize("rate", [100.0, 1000.0, 9000.0], ids=["slower", "as fast", "faster"])
@pytest.mark.parametrize(("before", "after"), [(16, 64), (64, 16), (4, 64), (64, 2), (8, 8)])
def test_it_follows_a_load_that_changes(before: int, after: int, rate: float) -> None:
    controller = ConcurrencyController(64)
    feed(controller, saturating(before), 3000)
    changed = saturating(after, rate)
    feed(controller, changed, 2 * MAX_STAY)
    assert usual(feed(controller, changed, 300)) == after


def test_a_load_of_another_rate_is_noticed_at_once() -> None:
    controller, curve = ConcurrencyController(64), saturating(16)
    feed(controller, curve, 3000)
    while feed(controller, curve, 1) != [8]:
        pass  # until the last trial of a round: now it would stay for long
    limits = feed(controller, curve, 100)
    assert limits[10:] == [16] * 90
    assert feed(controller, saturating(64, 8000.0), 40)[-1] == 64


def test_from_far_above_the_knee_it_comes_down_soon() -> None:
    controller = ConcurrencyController(64, start_rows=64)
    assert feed(controller, saturating(4), 35)[-1] == 4


def test_a_slower_load_does_not_send_it_to_the_bottom() -> None:
    controller = ConcurrencyController(64)
    feed(controller, saturating(32, 1000.0), 3000)
    limits = feed(controller, saturating(32, 100.0), 300)
    assert min(limits) >= 16


@given(st.lists(st.integers(0, 5), max_size=100))
def test_a_batch_that_was_not_filled_says_nothing(rows: list[int]) -> None:
    controller = ConcurrencyController(64)
    for num_rows in rows:
        controller.observe(10**9, SPAN_S, num_rows)
    assert controller.limit == 8


def test_rows_that_still_drain_after_a_step_down_say_nothing() -> None:
    controller = ConcurrencyController(64)
    for _ in range(100):
        controller.observe(10**9, SPAN_S, 32)
    assert controller.limit == 8


def test_a_trial_that_nobody_fills_ends() -> None:
    controller = ConcurrencyController(64)
    limits = feed(controller, saturating(64), 400, demand=9)
    assert usual(limits) == 8
    assert limits.count(16) < 0.3 * len(limits)


def test_spans_without_time_or_tokens_are_left_out() -> None:
    controller = ConcurrencyController(64)
    for _ in range(50):
        controller.observe(0, SPAN_S, 8)
        controller.observe(100, 0.0, 8)
    assert controller.limit == 8


@given(
    st.integers(1, 100),
    st.integers(1, 100),
    st.lists(st.tuples(st.integers(0, 10**6), st.floats(0, 10), st.floats(0, 1.5)), max_size=300),
)
def test_whatever_it_is_told_it_stays_within_its_levels(
    max_rows: int, start_rows: int, spans: list[tuple[int, float, float]]
) -> None:
    controller = ConcurrencyController(max_rows, start_rows)
    for num_tokens, busy_s, filled in spans:
        controller.observe(num_tokens, busy_s, round(filled * controller.limit))
        assert controller.limit in controller.levels
        assert 1 <= controller.limit <= max_rows


def test_a_gain_below_the_bar_is_not_worth_it() -> None:
    controller = ConcurrencyController(64)
    limits = feed(controller, lambda rows: float(10**6 * (MIN_GAIN - 0.01) ** rows.bit_length()), 400)
    assert usual(limits) == 1
