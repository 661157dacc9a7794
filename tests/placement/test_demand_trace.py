"""Calls become busy intervals, in bounded memory."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.placement.demand_trace import DemandTrace, FunctionRecord
from plait.placement.job import Role
from plait.placement.job_profile import union
from plait.types.errors import StateError


def call(start_s: float, end_s: float, role: Role = Role.TRAIN, num_devices: int = 1, num_bytes: int = 0) -> FunctionRecord:
    return FunctionRecord(start_s, end_s, "forward_backward", role, num_devices, num_bytes)


def test_touching_calls_are_one_interval_and_peaks_are_kept() -> None:
    trace = DemandTrace()
    for start in range(5):
        trace.record(call(start, start + 1, num_devices=start + 1, num_bytes=10 - start))
    assert trace.intervals(Role.TRAIN) == [(0, 5)]
    assert trace.peaks(Role.TRAIN) == (5, 10)
    assert trace.span() == (0, 5)


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 9)), max_size=40))
def test_any_order_gives_the_union(calls: list[tuple[int, int]]) -> None:
    trace = DemandTrace()
    for start, length in calls:
        trace.record(call(start, start + length))
    assert list(trace.intervals(Role.TRAIN)) == union((start, start + length) for start, length in calls)


def test_thousands_of_short_calls_take_little_and_keep_the_phases() -> None:
    trace = DemandTrace(max_intervals=64)
    for step in range(20):
        for chunk in range(50):
            start = 100 * step + chunk
            trace.record(call(start, start + 0.9, Role.ROLLOUT))
    intervals = trace.intervals(Role.ROLLOUT)
    assert len(intervals) <= 64
    assert intervals[-1] == pytest.approx((1900, 1949.9))


def test_the_oldest_is_forgotten_for_all_roles_alike() -> None:
    trace = DemandTrace(max_intervals=64)
    trace.record(call(0, 5, Role.ROLLOUT))
    for step in range(200):
        trace.record(call(10 * step, 10 * step + 5 + (step == 150)))
    assert len(trace.intervals(Role.TRAIN)) <= 64
    assert trace.intervals(Role.ROLLOUT) == []
    assert trace.span()[0] > 1000
    assert trace.intervals(Role.TRAIN)[-1] == (1990, 1995)


def test_a_call_that_ends_before_it_starts_is_refused() -> None:
    with pytest.raises(StateError, match="before its start"):
        DemandTrace().record(call(2, 1))
