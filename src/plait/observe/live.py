"""Shows a run while it goes on: a table on a terminal, else one plain line per step.

- The table is drawn at most twice a second from the latest snapshot, however many events come in; an event costs a fold, no
  drawing. Many tasks make drawing dear, and then it is done less often, so that it takes `MAX_CPU_SHARE` of a core at most.
- Plain output holds no control codes.
- Without a table, what takes long (`under_way`) is told by lines too.
- A reader that went away (a closed pipe) ends the showing, not the run.
"""

import os
import sys
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from types import TracebackType
from typing import TextIO

from rich.console import Console, RenderableType
from rich.live import Live

from plait.observe.events import Event, RewardError
from plait.observe.live_table import render_run
from plait.observe.plain import plain_line, stamped
from plait.observe.summary import RunSummary
from plait.observe.under_way import UnderWay

REFRESH_INTERVAL_S = 0.5
MAX_CPU_SHARE = 0.01
DEFAULT_WIDTH = 120


class LiveView:
    """`with LiveView() as view: view.on_event(event)`. `history` are the events of a run that is resumed."""

    def __init__(
        self,
        stream: TextIO | None = None,
        history: Iterable[Event] = (),
        clock: Callable[[], float] = time.time,
        console: Console | None = None,
        under_way: UnderWay | None = None,
    ) -> None:
        self.summary, self._under_way = RunSummary(history), under_way or UnderWay()
        self._stream = stream or sys.stdout
        self._clock = clock
        self._lock, self._writing = threading.Lock(), threading.Lock()
        self._console = console or (Console(file=self._stream) if _is_terminal(self._stream) else None)
        self._live: Live | None = None
        self._ticker: threading.Thread | None = None
        self._stopping = threading.Event()
        self._is_over = False
        self._last_failure: tuple[str, int, str] | None = None
        self._is_gone = False

    def __enter__(self) -> "LiveView":
        if self._console is not None:
            self._live = Live(console=self._console, get_renderable=self.render, auto_refresh=False)
            self._live.start(refresh=True)
        tick = self._tell if self._live is None else partial(self._tick, self._live)
        self._ticker = threading.Thread(target=tick, name="live-view", daemon=True)
        self._ticker.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stopping.set()
        if self._ticker is not None:
            self._ticker.join()
        self._is_over = True
        if self._live is not None:
            self._live.stop()  # Draws once more, and leaves the table on the screen.
            self._live = None

    def on_event(self, event: Event) -> None:
        """Take an event in. Safe from any thread."""
        with self._lock:
            self.summary.apply(event)
            line = plain_line(event, self.summary) if self._console is None and not self._is_repeated(event) else None
        if line is not None:
            self._write(line)

    def _is_repeated(self, event: Event) -> bool:
        """Of many equal failures in a step only the first gets a line; the log and the report have them all."""
        if not isinstance(event, RewardError):
            return False
        key = (event.task, event.step, event.stage)
        is_repeated = key == self._last_failure
        self._last_failure = key
        return is_repeated

    def render(self) -> RenderableType:
        """The table as it is now, cut to the terminal's height while the run goes on."""
        width, height = self._console.size if self._console else (DEFAULT_WIDTH, 0)
        if self._is_over or not height:
            height = sys.maxsize
        with self._lock:
            snapshot = self.summary.snapshot(self._clock())
        return render_run(snapshot, width, height, ", ".join(self._under_way.now()))

    def _tick(self, live: Live) -> None:
        interval_s = REFRESH_INTERVAL_S
        while not self._stopping.wait(interval_s):
            started_s = time.thread_time()
            live.refresh()
            interval_s = max(REFRESH_INTERVAL_S, (time.thread_time() - started_s) / MAX_CPU_SHARE)

    def _tell(self) -> None:
        while not self._stopping.wait(REFRESH_INTERVAL_S):
            for line in self._under_way.due():
                self._write(stamped(line, self._clock()))

    def _write(self, line: str) -> None:
        with self._writing:
            self._is_gone = self._is_gone or not write_line(line, self._stream)


def write_line(line: str, stream: TextIO) -> bool:
    """False if nobody reads any more."""
    try:
        stream.write(line + "\n")
        stream.flush()
    except (BrokenPipeError, ValueError):
        return False
    return True


def say_at_once(line: str, stream: TextIO | None = None) -> None:
    """Before there is a view: to whoever gets no table, which would say it too."""
    stream = stream or sys.stdout
    if not _is_terminal(stream):
        write_line(stamped(line, time.time()), stream)


def _is_terminal(stream: TextIO) -> bool:
    return stream.isatty() and os.environ.get("TERM") != "dumb"
