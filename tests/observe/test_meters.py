import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.observe.meters import MAX_IDLE_SPANS, MAX_RATE_STEPS, MERGE_GAP_S, UTILISATION_WINDOW_S, BusyMeter, TokenRate
from plait.observe.snapshot import IdleSpan

LENGTHS = st.lists(st.tuples(st.floats(0, 20), st.floats(0, 20), st.integers(0, 500)), max_size=60)


def spans_of(lengths: list[tuple[float, float, int]]) -> list[tuple[float, float, int]]:
    """(idle before, busy, tokens) as (start, end, tokens)."""
    now_s, spans = 0.0, []
    for idle_s, busy_s, tokens in lengths:
        spans.append((now_s + idle_s, now_s + idle_s + busy_s, tokens))
        now_s += idle_s + busy_s
    return spans


@given(LENGTHS)
def test_busy_and_idle_add_up_to_the_time_that_passed(lengths: list[tuple[float, float, int]]) -> None:
    meter = BusyMeter()
    meter.start(0.0)
    for start_s, end_s, tokens in spans_of(lengths):
        meter.add(start_s, end_s, tokens)
    assert meter.busy_s == pytest.approx(sum(busy_s for _, busy_s, _ in lengths), abs=1e-6)
    assert meter.num_idle_spans <= len(lengths)
    assert all(span.end_s - span.start_s >= MERGE_GAP_S for span in meter.idle_spans)


@given(LENGTHS, st.floats(0, 10))
def test_recent_equals_the_plain_sum_over_the_window(lengths: list[tuple[float, float, int]], later_s: float) -> None:
    meter = BusyMeter()
    meter.start(0.0)
    spans = spans_of(lengths)
    for span in spans:
        meter.add(*span)
    now_s = (spans[-1][1] if spans else 0.0) + later_s
    begin_s = now_s - UTILISATION_WINDOW_S
    expected_s = sum(max(0.0, min(end_s, now_s) - max(start_s, begin_s)) for start_s, end_s, _ in spans)
    # Spans that were joined for memory's sake (a second at most) are spread evenly over their length.
    assert meter.recent(now_s, UTILISATION_WINDOW_S)[0] == pytest.approx(expected_s, abs=MERGE_GAP_S * 20 + 1e-6)


def test_overlapping_spans_count_once() -> None:
    meter = BusyMeter()
    meter.start(0.0)
    meter.add(1.0, 3.0)
    meter.add(2.0, 4.0)
    meter.add(2.5, 3.5)
    assert meter.busy_s == 3.0
    assert list(meter.idle_spans) == [IdleSpan(0.0, 1.0)]


def test_memory_is_bounded() -> None:
    meter, rate = BusyMeter(), TokenRate()
    meter.start(0.0)
    rate.start(0.0)
    for number in range(20_000):
        meter.add(number * 0.1, number * 0.1 + 0.04, 1)
        rate.add(number * 0.001, 1)
    assert len(meter._recent) <= UTILISATION_WINDOW_S / 0.1 + 2
    assert len(meter.idle_spans) == MAX_IDLE_SPANS
    assert meter.num_idle_spans == 19_999
    assert len(rate._counts) == MAX_RATE_STEPS


def test_token_rate_is_over_the_latest_steps() -> None:
    rate = TokenRate()
    rate.start(0.0)
    assert rate.tokens_per_s is None
    rate.add(10.0, 1000)
    assert rate.tokens_per_s == 100.0
    for number in range(2, 40):
        rate.add(10.0 * number, 500)
    assert rate.tokens_per_s == pytest.approx(50.0)
