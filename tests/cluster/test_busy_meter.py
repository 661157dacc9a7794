import itertools
import math

from hypothesis import given
from hypothesis import strategies as st

from plait.cluster.busy_meter import MAX_GAP_S, MAX_SPAN_S, MIN_SPAN_S, BusyMeter
from plait.cluster.messages import Busy

START_S = 1000.0
Piece = tuple[float, float, int, str, int]
"""Idle before it, its length, tokens, task, rows."""

pieces = st.lists(
    st.tuples(
        st.sampled_from([0.0, 0.0, 0.001, MAX_GAP_S / 2, 2 * MAX_GAP_S, 1.0]),
        st.floats(0.0, 1.0) | st.floats(0.0, 0.05),
        st.integers(0, 100),
        st.sampled_from(["", "", "a", "b"]),
        st.integers(1, 8),
    ).map(lambda piece: piece if piece[3] == "" else (*piece[:4], 0)),
    max_size=40,
)


def played(found: list[Piece]) -> tuple[list[Busy], list[tuple[float, float, Piece]]]:
    """All spans, and each piece with its start and end."""
    meter, spans, placed, now_s = BusyMeter(), [], [], START_S
    for piece in found:
        idle_s, length_s, num_tokens, task, num_rows = piece
        start_s = now_s + idle_s
        now_s = start_s + length_s
        placed.append((start_s, now_s, piece))
        spans += meter.add(start_s, now_s, num_tokens, task, num_rows)
    return spans + meter.flush(), placed


@given(pieces)
def test_spans_are_in_order_and_hold_all_work_and_hardly_any_idle_time(found: list[Piece]) -> None:
    spans, placed = played(found)
    assert all(left.end_s <= right.start_s for left, right in itertools.pairwise(spans))
    assert sum(span.num_tokens for span in spans) == sum(piece[2] for piece in found)
    for start_s, end_s, _ in placed:
        assert any(span.start_s <= start_s and end_s <= span.end_s for span in spans)
    busy_s = sum(end_s - start_s for start_s, end_s, _ in placed)
    covered_s = sum(span.end_s - span.start_s for span in spans)
    assert busy_s - 1e-6 <= covered_s <= busy_s + MAX_GAP_S * len(found) + 1e-6


@given(pieces)
def test_a_span_with_a_task_or_rows_is_of_that_work_alone(found: list[Piece]) -> None:
    spans, placed = played(found)
    for span in spans:
        inside = [piece for start_s, end_s, piece in placed if span.start_s <= start_s and end_s <= span.end_s and end_s > start_s]
        tasks = {piece[3] for piece in inside}
        if span.task or span.num_rows:
            assert tasks <= {span.task}
        if span.num_rows and inside:
            assert span.num_rows >= max(piece[4] for piece in inside)


@given(pieces)
def test_spans_are_coarse_unless_idle_time_parts_them(found: list[Piece]) -> None:
    spans, placed = played(found)
    length_s = sum(end_s - start_s for start_s, end_s, _ in placed)
    num_gaps = sum(piece[0] > MAX_GAP_S for piece in found)
    assert len(spans) <= num_gaps + 1 + 2 * (length_s + MAX_GAP_S * len(found)) / MIN_SPAN_S


def test_work_without_a_pause_is_told_every_so_often() -> None:
    spans, _ = played([(0.0, 0.03, 10, "", 4)] * 100)
    assert all(MAX_SPAN_S <= span.end_s - span.start_s < MAX_SPAN_S + 0.04 for span in spans[:-1])
    assert sum(span.num_tokens for span in spans) == 1000
    assert {span.num_rows for span in spans} == {4}


def test_training_of_another_task_is_another_span() -> None:
    spans, _ = played([(0.0, 0.2, 1, "a", 0), (0.0, 0.2, 2, "b", 0)])
    assert [(span.task, span.num_tokens) for span in spans] == [("a", 1), ("b", 2)]


def test_steps_of_a_fast_model_that_alternate_share_spans_without_rows() -> None:
    spans, _ = played([(0.0, 0.004, 8, "", 8), (0.0, 0.004, 0, "a", 0)] * 500)
    assert len(spans) <= 9
    assert {(span.task, span.num_rows) for span in spans} == {("", 0)}


def test_long_slices_between_decode_steps_keep_their_task() -> None:
    spans, _ = played([(0.0, 0.03, 8, "", 8), (0.0, 0.3, 0, "a", 0)] * 3)
    assert [(span.task, span.num_rows) for span in spans] == [("", 8), ("a", 0)] * 3


def test_a_clock_that_is_set_back_stands_still() -> None:
    meter = BusyMeter()
    meter.add(10.0, 10.1, 1, "a")
    meter.add(4.0, 4.1, 1, "a")
    (span,) = meter.flush()
    assert (span.start_s, span.end_s, span.num_tokens) == (10.0, 10.1, 2)
    assert math.isclose(span.end_s - span.start_s, 0.1)


def test_nothing_open_gives_nothing() -> None:
    assert BusyMeter().flush() == []
