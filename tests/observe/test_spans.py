import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.observe.report.history import Session
from plait.observe.report.spans import MERGE_GAP_S, Span, busy_s, merge_spans, stack_spans, thin_spans
from plait.observe.report.time_axis import TimeAxis

SPANS = st.lists(
    st.builds(
        lambda start, length, label, step: Span(start, start + length, label, step),
        st.floats(0, 100),
        st.floats(0, 5),
        st.sampled_from("ab"),
        st.integers(0, 2),
    ),
    max_size=40,
)


def covers(spans: list[Span], moment_s: float, label: str) -> bool:
    return any(span.label == label and span.start_s <= moment_s <= span.end_s for span in spans)


@given(SPANS)
def test_merging_loses_no_time_and_bridges_only_small_gaps(spans: list[Span]) -> None:
    merged = merge_spans(spans)
    assert all(covers(merged, moment_s, span.label) for span in spans for moment_s in (span.start_s, span.end_s))
    for one in merged:
        parts = sorted(s for s in spans if s[2:] == one[2:] and one.start_s <= s.start_s and s.end_s <= one.end_s)
        end_s = one.start_s
        for part in parts:
            assert part.start_s - end_s < MERGE_GAP_S
            end_s = max(end_s, part.end_s)
        assert (parts[0].start_s, end_s) == (one.start_s, one.end_s), "it is made of nothing but its parts"


@given(SPANS)
def test_what_is_merged_is_apart_and_stays_as_it_is(spans: list[Span]) -> None:
    merged = merge_spans(spans)
    assert merge_spans(merged) == merged
    for number, one in enumerate(merged):
        for other in merged[number + 1 :]:
            assert one[2:] != other[2:] or other.start_s - one.end_s >= MERGE_GAP_S


def test_a_step_between_does_not_keep_spans_of_another_apart() -> None:
    assert merge_spans([Span(0, 10, "a", 1), Span(1, 2, "a", 2), Span(3, 12, "a", 1)]) == [Span(0, 12, "a", 1), Span(1, 2, "a", 2)]


def test_different_phases_and_steps_stay_apart() -> None:
    spans = [Span(0, 1, "a", 1), Span(1, 2, "a", 2), Span(1.01, 2, "b", 2), Span(2.01, 3, "a", 2)]
    assert merge_spans(spans) == [Span(0, 1, "a", 1), Span(1, 3, "a", 2), Span(1.01, 2, "b", 2)]


@given(SPANS, st.integers(1, 10))
def test_thinning_reaches_its_limit_and_loses_no_time(spans: list[Span], limit: int) -> None:
    thin = thin_spans(spans, limit)
    assert len(thin) <= max(limit, len({span.label for span in spans}))
    assert all(covers(thin, span.start_s, span.label) and covers(thin, span.end_s, span.label) for span in spans)


def test_a_hundred_thousand_spans_are_thinned_quickly() -> None:
    assert len(thin_spans([Span(number * 0.2, number * 0.2 + 0.1) for number in range(100_000)], 1000)) <= 1000


@given(SPANS)
def test_stacked_spans_never_cover_each_other(spans: list[Span]) -> None:
    stacked = stack_spans(sorted(spans, key=lambda span: span.start_s))
    assert [item.span for item in stacked] == sorted(spans, key=lambda span: span.start_s)
    for number, one in enumerate(stacked):
        assert 0 <= one.row < one.num_rows
        for other in stacked[number + 1 :]:
            if one.span.start_s < other.span.end_s and other.span.start_s < one.span.end_s and one.span != other.span:
                assert (one.row, one.num_rows) != (other.row, other.num_rows)


def test_a_span_that_is_alone_has_the_whole_lane() -> None:
    stacked = stack_spans([Span(0, 1), Span(1, 3), Span(2, 4), Span(5, 6)])
    assert [(item.row, item.num_rows) for item in stacked] == [(0, 1), (0, 2), (1, 2), (0, 1)]


def test_busy_time_inside_a_window() -> None:
    assert busy_s([Span(0, 2), Span(3, 5)], 1, 4) == 2


@given(
    st.lists(st.tuples(st.floats(0, 1e5), st.floats(0, 1e4)), min_size=1, max_size=5),
    st.lists(st.floats(-10, 1e6), min_size=2, max_size=20),
)
def test_the_time_axis_keeps_the_order_of_moments(lengths: list[tuple[float, float]], moments: list[float]) -> None:
    sessions, now_s = [], 0.0
    for down_s, up_s in lengths:
        sessions.append(Session(now_s + down_s, now_s + down_s + up_s))
        now_s += down_s + up_s
    axis = TimeAxis(sessions)
    positions = [axis.position(moment_s) for moment_s in sorted(moments)]
    assert positions == sorted(positions)
    assert all(-1e-6 <= position <= axis.end_x + 1e-6 for position in positions)


def test_a_gap_is_drawn_short_and_keeps_its_true_length() -> None:
    axis = TimeAxis([Session(1000, 1100), Session(8000, 8200)])
    (gap,) = axis.gaps
    assert (gap.start_x, gap.end_x, gap.length_s) == (100, pytest.approx(109), 6900)
    assert axis.position(1050) == 50
    assert axis.position(5000) == 100
    assert axis.position(8010) == pytest.approx(119)
    assert axis.end_x == pytest.approx(309)
