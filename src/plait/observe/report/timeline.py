"""The timeline as data for the chart: a lane per task with its phases, a lane per worker with its busy spans."""

from typing import Any

from plait.observe.report.history import RunHistory
from plait.observe.report.spans import Span, merge_spans, stack_spans, thin_spans
from plait.observe.report.time_axis import TimeAxis
from plait.observe.task_summary import PHASES

BUSY = "busy"
MAX_SPANS = 16_000
"""Most spans drawn in all lanes together."""

MIN_SPANS_PER_LANE = 200


def timeline_data(history: RunHistory, axis: TimeAxis) -> dict[str, Any]:
    """`spans` are rows of (lane, kind, start, end, row, rows, step, start time); lanes run from top to bottom."""
    num_lanes = len(history.tasks) + len(history.workers)
    max_spans = max(MIN_SPANS_PER_LANE, MAX_SPANS // max(1, num_lanes))
    lanes = [_task_spans(history, task, max_spans) for task in history.tasks]
    lanes += [_worker_spans(history, worker, max_spans) for worker in history.workers]
    kinds = _kinds(lanes)
    return {
        "lanes": [{"name": task, "worker": False} for task in history.tasks]
        + [{"name": worker, "worker": True} for worker in history.workers],
        "kinds": kinds,
        "spans": [row for number, spans in enumerate(lanes) for row in _rows(number, spans, kinds, axis)],
        "gaps": [[gap.start_x, gap.end_x, gap.length_s] for gap in axis.gaps],
        "end": axis.end_x,
    }


def _task_spans(history: RunHistory, task: str, max_spans: int) -> list[Span]:
    spans = [Span(phase.start_s, phase.time_s, phase.phase, phase.step) for phase in history.tasks[task].phases]
    return thin_spans(spans, max_spans)


def _worker_spans(history: RunHistory, worker: str, max_spans: int) -> list[Span]:
    """Busy is busy, whichever task it was for."""
    return thin_spans(merge_spans(Span(span.start_s, span.time_s, BUSY) for span in history.workers[worker]), max_spans)


def _kinds(lanes: list[list[Span]]) -> list[str]:
    present = {span.label for spans in lanes for span in spans}
    return [
        *(phase for phase in PHASES if phase in present),
        *sorted(present - {*PHASES, BUSY}),
        *([BUSY] if BUSY in present else []),
    ]


def _rows(lane: int, spans: list[Span], kinds: list[str], axis: TimeAxis) -> list[list[float | int]]:
    rows: list[list[float | int]] = []
    for span, row, num_rows in stack_spans(spans):
        start_x, end_x = axis.position(span.start_s), axis.position(span.end_s)
        rows.append(
            [lane, kinds.index(span.label), round(start_x, 3), round(end_x, 3), row, num_rows, span.step, round(span.start_s, 2)]
        )
    return rows
