"""A job's period and phases come back from its trace, or the reason why not."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plait.placement.demand_trace import DemandTrace, FunctionRecord
from plait.placement.extraction import NUM_BINS, _autocorrelation, busy_until, extract
from plait.placement.job import Role


def closed_loop(
    num_steps: int, rollout_s: float, train_s: float, jitter: float, seed: int, gap_s: float = 1.0, odd_steps: int = 0
) -> DemandTrace:
    """A rollout of 20 chunks, a gap, an update of two calls, a gap; odd steps have a pause of three periods."""
    rng = random.Random(seed)
    trace = DemandTrace()
    odd = set(rng.sample(range(num_steps), odd_steps))
    now_s = 1000.0
    for step in range(num_steps):
        chunk_s = rollout_s * max(0.2, rng.gauss(1, jitter)) / 20
        for _ in range(20):
            trace.record(FunctionRecord(now_s, now_s + 0.98 * chunk_s, "sample", Role.ROLLOUT, 16, 7))
            now_s += chunk_s
        now_s += gap_s
        spent_s = train_s * max(0.2, rng.gauss(1, jitter))
        trace.record(FunctionRecord(now_s, now_s + 0.8 * spent_s, "forward_backward", Role.TRAIN, 8, 9))
        trace.record(FunctionRecord(now_s + 0.8 * spent_s, now_s + spent_s, "optim_step", Role.TRAIN, 8, 11))
        now_s += spent_s + gap_s + (3 * (rollout_s + train_s) if step in odd else 0)
    return trace


@settings(max_examples=40)
@given(st.floats(20, 500), st.floats(0.2, 0.5), st.floats(0, 0.1), st.integers(0, 2**20))
def test_a_jittering_loop_gives_back_its_period_and_phases(rollout_s: float, ratio: float, jitter: float, seed: int) -> None:
    """Within 1 % plus three errors of the median of 40 steps."""
    train_s = ratio * rollout_s
    found = extract(closed_loop(40, rollout_s, train_s, jitter, seed))
    assert found.profile is not None, found.reason
    period_s = rollout_s + train_s + 2
    error = 0.01 + 3 * 1.25 * jitter / 40**0.5
    assert found.profile.period_s == pytest.approx(period_s, rel=error)
    assert found.profile.duty([Role.TRAIN]) == pytest.approx(train_s / period_s, abs=0.03 + jitter / 2)
    assert found.profile.duty([Role.ROLLOUT]) == pytest.approx(rollout_s / period_s, abs=0.03 + jitter / 2)


def test_odd_steps_do_not_count() -> None:
    found = extract(closed_loop(40, 60, 20, 0.03, 1, odd_steps=5))
    assert found.profile is not None
    assert found.profile.period_s == pytest.approx(82, rel=0.02)


def test_phases_carry_devices_and_memory_and_the_anchor_is_a_start() -> None:
    found = extract(closed_loop(10, 60, 20, 0.0, 1))
    assert found.profile is not None
    peaks = {phase.role: (phase.num_devices, phase.num_bytes) for phase in found.profile.phases}
    assert peaks == {Role.ROLLOUT: (16, 7), Role.TRAIN: (8, 11)}
    assert found.profile.phases[0].offset_s == pytest.approx(0, abs=0.1)
    assert found.anchor_s > 1000 + 7 * 82, "one of the latest"
    assert (found.anchor_s - 1000) % 82 == pytest.approx(61, abs=0.2) or (found.anchor_s - 1000) % 82 == pytest.approx(0, abs=0.2)


def test_rollouts_without_a_pause_leave_the_period_to_training() -> None:
    trace = DemandTrace()
    for step in range(12):
        trace.record(FunctionRecord(100 * step, 100 * step + 100, "sample", Role.ROLLOUT))
        trace.record(FunctionRecord(100 * step + 90, 100 * step + 120, "forward_backward", Role.TRAIN))
    found = extract(trace)
    assert found.profile is not None
    assert found.profile.period_s == pytest.approx(100, rel=0.01)
    assert found.profile.duty([Role.ROLLOUT]) == pytest.approx(1, abs=0.02)
    assert found.profile.duty([Role.TRAIN]) == pytest.approx(0.3, abs=0.02)


def test_two_bursts_a_period_are_two_phases() -> None:
    trace = DemandTrace()
    for step in range(15):
        for offset, length in ((0, 10), (30, 25)):
            trace.record(FunctionRecord(100 * step + offset, 100 * step + offset + length, "forward_backward", Role.TRAIN))
    found = extract(trace)
    assert found.profile is not None
    assert found.profile.period_s == pytest.approx(100, rel=0.01)
    assert sorted(phase.duration_s for phase in found.profile.phases) == pytest.approx([10, 25], abs=0.5)


@pytest.mark.parametrize("num_steps", [0, 1, 2, 3])
def test_too_short_a_trace_says_so(num_steps: int) -> None:
    found = extract(closed_loop(num_steps, 60, 20, 0.0, 1))
    assert found.profile is None
    assert found.reason


def test_random_calls_have_no_period() -> None:
    for seed in range(10):
        rng, now_s, trace = random.Random(seed), 0.0, DemandTrace()
        for _ in range(60):
            now_s += rng.expovariate(1 / 50)
            length_s = rng.expovariate(1 / 10)
            trace.record(FunctionRecord(now_s, now_s + length_s, "forward_backward", Role.TRAIN))
            now_s += length_s
        found = extract(trace)
        assert found.profile is None
        assert "period" in found.reason


def test_busy_time_before_a_moment() -> None:
    import numpy as np

    times = np.array([0.0, 1.0, 1.5, 2.0, 3.0, 5.0])
    assert list(busy_until([(1.0, 2.0), (3.0, 4.0)], times)) == [0, 0, 0.5, 1, 1, 2]
    assert list(busy_until([], times)) == [0] * 6


def test_periods_that_begin_with_a_phase_of_no_rhythm_tell_none() -> None:
    """Two of three phases keep to it."""
    trace, rng, first_s = DemandTrace(), random.Random(1), 6.0
    for step in range(24):
        first_s = rng.choice([other_s for other_s in (-25.0, 6.0, 37.0) if other_s != first_s])
        for offset_s in (first_s, 50.0, 62.0):
            start_s = 1000 + 100 * step + offset_s
            trace.record(FunctionRecord(start_s, start_s + 7, "update", Role.TRAIN))
    found = extract(trace)
    assert found.profile is None
    assert "no period of about" in found.reason


def test_a_pattern_is_as_like_itself_after_many_periods_as_after_one() -> None:
    import numpy as np

    signal = (np.arange(NUM_BINS) // (NUM_BINS // 16) % 2).astype(float)
    found = _autocorrelation([signal])
    assert found[[0, NUM_BINS // 8, NUM_BINS // 2, 3 * NUM_BINS // 4]] == pytest.approx([1.0] * 4)
    assert found[NUM_BINS // 16] == pytest.approx(-1.0)
