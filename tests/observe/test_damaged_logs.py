"""Logs that were cut, lost their beginning, were torn or put together: a partial view, or an error naming the line."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from plait.observe import events as e
from plait.observe.live_table import render_run
from plait.observe.log import read_events, read_latest_events
from plait.observe.report import build_report
from plait.observe.summary import RunSummary
from plait.types.errors import StateError
from tests.observe.sample_run import sample_events

EVENTS = list(sample_events(tasks=("gcd", "calculator"), num_steps=6, resume_after=3, failing="gcd"))
LINES = [e.encode_event(event) + b"\n" for event in EVENTS]
START_MISSING = "the log has no start of the run"


def view(events: Sequence[e.AnyEvent]) -> None:
    """What status and the live table make of them."""
    summary = RunSummary(events)
    for now_s in (0.0, (summary.latest_s or 0.0) + 10):
        render_run(summary.snapshot(now_s), 100, 50)


def test_a_log_that_was_cut_is_read_up_to_there(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    for number, line in enumerate(LINES):
        for kept in {0, 1, len(line) // 2, len(line) - 1}:
            path.write_bytes(b"".join(LINES[:number]) + line[:kept])
            assert list(read_events(path)) == EVENTS[:number]
        view(EVENTS[:number])
        view(list(read_latest_events(path)))


def test_a_log_without_its_beginning_has_a_view() -> None:
    for first in range(len(EVENTS) + 1):
        view(EVENTS[first:])


def test_a_log_that_lacks_any_line_has_a_view() -> None:
    for number in range(len(EVENTS)):
        view(EVENTS[:number] + EVENTS[number + 1 :])


def test_a_line_that_was_torn_in_the_middle_of_a_log_is_named(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    for number in range(0, len(LINES) - 1, 5):
        torn = LINES[number][: len(LINES[number]) // 2]
        path.write_bytes(b"".join([*LINES[:number], torn, *LINES[number + 1 :]]))
        with pytest.raises(StateError, match=f"line {number + 1} is not an event"):
            list(read_events(path))


@pytest.mark.parametrize(
    "line", [b"\n", b"\0\0\0\n", b"null\n", b"[]\n", b'{"kind":"other","time_s":1}\n', b'{"time_s":1}\n', b"\xff\n"]
)
def test_a_line_that_is_no_event_is_named(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "events.jsonl"
    path.write_bytes(LINES[0] + line)
    with pytest.raises(StateError, match="line 2 is not an event"):
        list(read_events(path))


@pytest.mark.parametrize("kind", sorted({type(event) for event in EVENTS}, key=str))
def test_a_report_of_one_kind_of_events_alone(kind: type[e.Event]) -> None:
    assert build_report([event for event in EVENTS if isinstance(event, kind)])


@pytest.mark.parametrize("first", range(1, len(EVENTS), 17))
def test_a_report_of_a_log_without_its_beginning_says_so(first: int) -> None:
    page = build_report(EVENTS[first:])
    has_start = any(isinstance(event, e.RunStarted) for event in EVENTS[first:])
    assert (START_MISSING in page) == (not has_start)


def test_a_report_of_a_task_that_no_start_names_says_so() -> None:
    stranger = e.TaskStateChanged(time_s=EVENTS[-1].time_s, task="stranger", state="failed", cause="from another log")
    page = build_report([*EVENTS, stranger])
    assert "stranger" in page
    assert "no start of the run in the log names this task" in page
    assert "no start of the run in the log names this task" not in build_report(EVENTS)


@pytest.mark.parametrize("time_s", [-1e300, 0.0, 1e300])
def test_impossible_times_have_a_view(time_s: float) -> None:
    start = EVENTS[0]
    assert isinstance(start, e.RunStarted)
    events = [e.RunStarted(**{name: getattr(start, name) for name in start.__struct_fields__} | {"time_s": time_s}), *EVENTS[1:9]]
    view(events)
    assert build_report(events)
