import io
import re
import time
from collections.abc import Iterable
from typing import Any

import pytest
from rich.console import Console

from plait.observe import events as e
from plait.observe import live
from plait.observe.live import MAX_CPU_SHARE, REFRESH_INTERVAL_S, LiveView
from tests.observe.sample_run import START_S, sample_events

CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def rendered(events: Iterable[e.Event], width: int = 120, height: int = 60, now_s: float | None = None) -> str:
    console = Console(file=io.StringIO(), width=width, height=height, force_terminal=False)
    events = list(events)
    view = LiveView(console=console, clock=lambda: events[-1].time_s if now_s is None else now_s)
    for event in events:
        view.on_event(event)
    with console.capture() as capture:
        console.print(view.render())
    return capture.get()


def test_the_table_says_where_each_task_is() -> None:
    events = [event for event in sample_events(resume_after=None) if event.time_s < START_S + 110]
    text = rendered(events)
    gcd = next(line for line in text.splitlines() if line.lstrip().startswith("gcd"))
    assert re.search(r"gcd +\w+ +v(\d+) +\1/20 +0\.\d\d [▁▂▃▄▅▆▇█]+ +\d+ +9 % → \d+ % +0", gcd)
    assert re.search(r"rollout-0 +█+░* +\d+ % +(all tasks|idle \S+ s) · \d+ tokens/s · \d+ % since start", text)
    assert re.search(r"elapsed 1 min 4\d s · about .* remaining · [\d,]+ steps/h", text)


def test_a_failed_task_says_why_and_warnings_are_counted() -> None:
    text = rendered(sample_events(failing="word_sorting"))
    assert re.search(r"word_sorting +failed", text)
    assert "word_sorting: ZeroDivisionError: <b>division</b> by zero" in text
    assert "2 warnings, such as:" in text
    assert re.search(r"calculator +done +v20 +20/20 .* 3\s*$", text, re.MULTILINE)


@pytest.mark.parametrize("width", [60, 80, 100, 200])
@pytest.mark.parametrize("num_tasks", [1, 3, 32])
def test_the_table_fits_the_terminal(num_tasks: int, width: int) -> None:
    names = tuple(f"task-{number}" for number in range(num_tasks))
    events = [event for event in sample_events(names, 6) if not isinstance(event, e.RunEnded)]
    lines = rendered(events, width=width, height=24).splitlines()
    assert len(lines) <= 24
    assert all(len(line) <= width for line in lines)
    if num_tasks == 32:
        assert "more tasks: plait status demo" in "\n".join(lines)


def test_text_from_outside_cannot_steer_the_terminal() -> None:
    start = e.RunStarted(
        time_s=0,
        run="r\x1b]0;owned\x07",
        model="[red]m\x1b[31m",
        dtype="b",
        device="cpu",
        tasks=("a",),
        workers=(),
        batch_invariant=True,
        plait_version="0",
    )
    note = e.Note(time_s=1, level="warning", message="[bold]not markup[/bold]\x1b[2J")
    text = rendered([start, note])
    assert not CONTROL.search(text)
    assert "[red]m" in text
    assert "[bold]not markup[/bold]" in text


def test_a_terminal_gets_a_table_that_is_redrawn_and_left_behind() -> None:
    """Once at the start and once at the end, and in between at most once in each interval, however many events there are."""
    terminal, start_s = Terminal(), time.monotonic()
    with LiveView(stream=terminal, clock=lambda: START_S + 500) as view:
        for event in sample_events():
            view.on_event(event)
        while terminal.getvalue().count("elapsed") < 2:
            assert time.monotonic() < start_s + 60, "it is not drawn again"
            time.sleep(0.02)
    drawn = terminal.getvalue()
    assert drawn.count("elapsed") <= (time.monotonic() - start_s) / REFRESH_INTERVAL_S + 2
    assert "\x1b[?25l" in drawn
    assert drawn.rstrip().endswith("\x1b[?25h")
    assert "word_sorting" in drawn


def test_output_that_is_no_terminal_has_one_line_per_step_and_no_control_codes() -> None:
    stream = io.StringIO()
    events = list(sample_events(failing="word_sorting"))
    with LiveView(stream=stream) as view:
        for event in events:
            view.on_event(event)
    text = stream.getvalue()
    assert not CONTROL.search(text)
    steps = [event for event in events if isinstance(event, e.StepCommitted)]
    assert len(re.findall(r"  step \d+/20  ", text)) == len(steps)
    assert re.search(r"^\d\d:\d\d:\d\d  gcd  step 7/20  reward 0\.\d{3}  loss \S+  \d+ tokens/s  rollout \d", text, re.MULTILINE)
    assert re.search(r"calculator  step 1/20  warm start  loss", text)
    assert "gcd  version 20  accuracy 91 % of 64 questions" in text
    assert "word_sorting  failed: ZeroDivisionError: <b>division</b> by zero" in text
    assert "worker train-0 lost: killed by signal 9" in text
    assert "run demo resumed" in text
    assert text.rstrip().endswith("run done after 3 min 44 s") or "run done after 3 min" in text


def test_a_dumb_terminal_counts_as_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    terminal = Terminal()
    with LiveView(stream=terminal) as view:
        view.on_event(next(iter(sample_events())))
    assert "\x1b" not in terminal.getvalue()


def test_a_reader_that_went_away_does_not_harm_the_run() -> None:
    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    with LiveView(stream=Gone()) as view:
        for event in sample_events():
            view.on_event(event)
    assert view.summary.snapshot(0).steps == 60


def test_a_resumed_run_goes_on_from_its_history() -> None:
    events = list(sample_events())
    cut = next(number for number, event in enumerate(events) if isinstance(event, e.RunStarted) and event.resumed)
    stream = io.StringIO()
    with LiveView(stream=stream, history=events[:cut]) as view:
        for event in events[cut:]:
            view.on_event(event)
    assert view.summary.snapshot(0).steps == 60
    assert "step 5/20" not in stream.getvalue()


def test_drawing_often_is_not_dear(monkeypatch: pytest.MonkeyPatch) -> None:
    """The dearer it is, the longer it waits: what it waits for the next time is told by a clock that drawing moves."""
    costs_s, waits_s, used_s = [0.001, 0.02, 0.5], list[float](), [0.0]

    class Drawn:
        def refresh(self) -> None:
            used_s[0] += costs_s[len(waits_s) - 1]

    class Stopping:
        def wait(self, interval_s: float) -> bool:
            waits_s.append(interval_s)
            return len(waits_s) > len(costs_s)

    monkeypatch.setattr(live.time, "thread_time", lambda: used_s[0])
    view: Any = LiveView(stream=Terminal())
    view._stopping = Stopping()
    view._tick(Drawn())
    assert waits_s[0] == REFRESH_INTERVAL_S
    assert waits_s[1:] == pytest.approx([max(REFRESH_INTERVAL_S, cost_s / MAX_CPU_SHARE) for cost_s in costs_s])
