"""Intervals on lanes: merged, thinned, stacked where they overlap. Pure."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

MERGE_GAP_S = 0.05
"""Spans closer than this are drawn as one."""


class Span(NamedTuple):
    start_s: float
    end_s: float
    label: str = ""
    """What it is; spans with different labels never merge."""
    step: int = 0


class StackedSpan(NamedTuple):
    span: Span
    row: int
    num_rows: int
    """Into how many rows the lane is divided where this span lies."""


def merge_spans(spans: Iterable[Span], gap_s: float = MERGE_GAP_S) -> list[Span]:
    """Sorted; spans of one label and step whose gap is less than `gap_s`, or that overlap, are one."""
    latest: dict[tuple[str, int], Span] = {}
    merged: list[Span] = []
    for span in sorted(spans):
        key = (span.label, span.step)
        last = latest.get(key)
        if last is not None and span.start_s - last.end_s < gap_s:
            latest[key] = last._replace(end_s=max(last.end_s, span.end_s))
            continue
        if last is not None:
            merged.append(last)
        latest[key] = span
    return sorted([*merged, *latest.values()])


def thin_spans(spans: Sequence[Span], max_spans: int) -> list[Span]:
    """Merged with ever larger gaps, across steps, until at most `max_spans` are left (but one per label at least)."""
    merged = merge_spans(spans)
    gap_s = MERGE_GAP_S
    num_labels = len({span.label for span in merged})
    while len(merged) > max(max_spans, num_labels):
        gap_s *= 2
        merged = merge_spans([span._replace(step=0) for span in merged], gap_s)
    return merged


def stack_spans(spans: Sequence[Span]) -> list[StackedSpan]:
    """Spans that overlap share the lane's height, row by row; a span that is alone has all of it. `spans` are sorted by start."""
    stacked: list[StackedSpan] = []
    cluster: list[tuple[Span, int]] = []
    row_ends_s: list[float] = []
    for span in spans:
        if row_ends_s and span.start_s >= max(row_ends_s):
            stacked += [StackedSpan(member, row, len(row_ends_s)) for member, row in cluster]
            cluster, row_ends_s = [], []
        row = next((index for index, end_s in enumerate(row_ends_s) if end_s <= span.start_s), len(row_ends_s))
        row_ends_s[row : row + 1] = [span.end_s]
        cluster.append((span, row))
    return stacked + [StackedSpan(member, row, len(row_ends_s)) for member, row in cluster]


def busy_s(spans: Iterable[Span], start_s: float, end_s: float) -> float:
    """How much of [start_s, end_s] is covered; `spans` do not overlap."""
    return sum(max(0.0, min(span.end_s, end_s) - max(span.start_s, start_s)) for span in spans)
