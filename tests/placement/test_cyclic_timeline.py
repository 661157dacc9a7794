"""Folding and micro-shifts, against sums written out."""

import math

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plait.placement.cyclic_timeline import NUM_BINS, NUM_SHIFTS, CyclicTimeline, Demand, micro_shift

FINE = 20_000


def is_busy(demand: Demand, times_s: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
    phases = (times_s - demand.anchor_s) % demand.period_s
    return np.any([(start <= phases) & (phases < end) for start, end in demand.windows], axis=0)


def overlap_by_hand(others: list[Demand], new: Demand, shift_s: float, horizon_s: float) -> float:
    times_s = (np.arange(FINE) + 0.5) * horizon_s / FINE
    moved = is_busy(Demand(new.period_s, new.windows, new.anchor_s + shift_s), times_s)
    return sum(float((is_busy(other, times_s) & moved).mean()) for other in others)


demands = st.builds(
    lambda start, length, anchor: Demand(100.0, ((start, min(100.0, start + length)),), anchor),
    st.floats(0, 90),
    st.floats(5, 40),
    st.floats(0, 300),
)


@settings(max_examples=15)
@given(st.lists(demands, min_size=1, max_size=3), demands)
def test_the_best_shift_overlaps_as_little_as_any_found_by_trying(others: list[Demand], new: Demand) -> None:
    shift_s, overlap = micro_shift([new], [CyclicTimeline(others)])
    tried = [overlap_by_hand(others, new, k * 100 / 20, 100.0) for k in range(20)]
    at_best = overlap_by_hand(others, new, shift_s, 100.0)
    assert at_best <= min(tried) + 2 * len(others) / NUM_BINS
    assert overlap == pytest.approx(at_best, abs=2 * len(others) / NUM_BINS)


@given(st.lists(demands, max_size=3), demands)
def test_overlaps_by_fft_are_the_sums_written_out(others: list[Demand], new: Demand) -> None:
    timeline = CyclicTimeline(others, horizon_s=100.0)
    folded = timeline.folded(new)
    step = NUM_BINS // NUM_SHIFTS
    by_hand = [float(timeline.busy @ np.roll(folded, k * step)) / NUM_BINS for k in range(NUM_SHIFTS)]
    np.testing.assert_allclose(timeline.overlaps(new), by_hand, atol=1e-9)


@given(st.floats(10, 400), st.floats(0.05, 1.0), st.floats(0, 1000))
def test_folding_keeps_the_duty(period_s: float, duty: float, anchor_s: float) -> None:
    timeline = CyclicTimeline([Demand(400.0, ((0.0, 100.0),))])
    folded = timeline.folded(Demand(period_s, ((0.0, duty * period_s),), anchor_s))
    assert folded.mean() == pytest.approx(duty)
    assert folded.min() >= -1e-9
    assert folded.max() <= 1 + 1e-9


def test_a_shorter_period_is_tiled() -> None:
    timeline = CyclicTimeline([Demand(200.0, ((0.0, 50.0), (100.0, 150.0)))])
    shift_s, overlap = micro_shift([Demand(100.0, ((0.0, 25.0),))], [timeline])
    assert 50 <= shift_s <= 75
    assert overlap == pytest.approx(0, abs=1e-9)


def test_a_period_that_does_not_fit_drifts_so_every_shift_is_alike() -> None:
    timeline = CyclicTimeline([Demand(100.0, ((0.0, 50.0),))])
    assert timeline.tiles(70.0) is None
    overlaps = timeline.overlaps(Demand(70.0, ((0.0, 14.0),)))
    np.testing.assert_allclose(overlaps, 0.5 * 0.2)


def test_one_shift_serves_all_pools_of_a_job() -> None:
    """The rollout fits from 60 on in the first group, the training from 30 on in the second: together only at 60."""
    rollout = CyclicTimeline([Demand(100.0, ((10.0, 60.0),))])
    train = CyclicTimeline([Demand(100.0, ((70.0, 100.0),))])
    shift_s, overlap = micro_shift([Demand(100.0, ((0.0, 45.0),)), Demand(100.0, ((50.0, 65.0),))], [rollout, train])
    assert math.isclose(overlap, 0, abs_tol=1e-9)
    assert 59 <= shift_s <= 66 or shift_s >= 85
    assert micro_shift([], []) == (0.0, 0.0)


@settings(max_examples=10)
@given(st.lists(demands, min_size=1, max_size=3), st.lists(demands, min_size=1, max_size=3))
def test_the_least_overlap_is_the_least_of_all_however_often_it_is_asked(others: list[Demand], asked: list[Demand]) -> None:
    timeline = CyclicTimeline(others)
    for demand in [*asked, *asked]:
        assert timeline.least_overlap(demand) == CyclicTimeline(others).overlaps(demand).min()
