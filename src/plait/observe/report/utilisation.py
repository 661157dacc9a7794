"""How busy each worker was: in numbers, and over time as data for a chart."""

from typing import Any

import msgspec

from plait.observe.report.history import RunHistory
from plait.observe.report.spans import Span, busy_s, merge_spans
from plait.observe.report.time_axis import TimeAxis

NUM_BINS = 40


class WorkerRow(msgspec.Struct, frozen=True):
    worker: str
    utilisation: float | None
    busy_s: float
    num_idle_spans: int
    longest_idle_s: float


def worker_rows(history: RunHistory, now_s: float) -> list[WorkerRow]:
    workers = history.summary.snapshot(now_s).workers
    return [WorkerRow(w.worker, w.utilisation, w.busy_s, w.num_idle_spans, max(w.longest_idle_s, w.idle_s)) for w in workers]


def utilisation_data(history: RunHistory, axis: TimeAxis) -> list[dict[str, Any]]:
    """Busy share of each of `NUM_BINS` equal stretches of the time axis, per worker; none where the run was down."""
    width = axis.end_x / NUM_BINS
    if width <= 0:
        return []
    data = []
    for worker, events in history.workers.items():
        spans = merge_spans((Span(axis.position(event.start_s), axis.position(event.time_s)) for event in events), gap_s=0.0)
        data.append(
            {"worker": worker, "shares": [_share(spans, number * width, (number + 1) * width, axis) for number in range(NUM_BINS)]}
        )
    return data


def _share(spans: list[Span], start_x: float, end_x: float, axis: TimeAxis) -> list[float | None]:
    down = sum(max(0.0, min(gap.end_x, end_x) - max(gap.start_x, start_x)) for gap in axis.gaps)
    up = end_x - start_x - down
    if up < 0.5 * (end_x - start_x):
        return [round((start_x + end_x) / 2, 3), None]
    return [round((start_x + end_x) / 2, 3), round(min(1.0, busy_s(spans, start_x, end_x) / up), 4)]
