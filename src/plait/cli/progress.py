"""Progress of what takes more than two seconds: a bar on a terminal, a line now and then elsewhere, on standard error."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

PATIENCE_S = 2.0
REDRAW_S = 0.1
PLAIN_EVERY_S = 30.0

Tell = Callable[[str, float | None], None]


@contextmanager
def progress() -> Iterator[Tell]:
    """Gives what is to be called with (what is under way, share that is done or None), as often as one likes."""
    shown = _Bar() if sys.stderr.isatty() else _Lines()
    try:
        yield shown.tell
    finally:
        shown.close()


class _Lines:
    def __init__(self) -> None:
        self._next_s = time.monotonic() + PLAIN_EVERY_S

    def tell(self, what: str, share: float | None) -> None:
        now_s = time.monotonic()
        if now_s < self._next_s:
            return
        self._next_s = now_s + PLAIN_EVERY_S
        print(what if share is None else f"{what} ({100 * share:.0f} %)", file=sys.stderr, flush=True)

    def close(self) -> None:
        """Lines stay."""


class _Bar:
    def __init__(self) -> None:
        self._next_s = time.monotonic() + PATIENCE_S
        self._bar: Any = None
        self._task: Any = None

    def tell(self, what: str, share: float | None) -> None:
        now_s = time.monotonic()
        if now_s < self._next_s:
            return
        self._next_s = now_s + REDRAW_S
        if self._bar is None:
            self._begin()
        self._bar.update(self._task, description=what, total=None if share is None else 1.0, completed=share or 0.0)

    def _begin(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

        columns = (BarColumn(), TaskProgressColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
        self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
        self._task = self._bar.add_task("", total=1.0)
        self._bar.start()

    def close(self) -> None:
        if self._bar is not None:
            self._bar.stop()
