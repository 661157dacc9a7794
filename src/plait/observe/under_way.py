"""What goes on now, for whoever watches a run without a table: what takes long is told, and told again. Pure: clock passed in.

- The first work of a kind that somebody does is told after `PATIENCE_S`, later ones of that kind after `AGAIN_S`: that steps take
  long is known by then. Each is told again every `AGAIN_S`.
- Works of one text that are due together share a line.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from plait.observe.text import duration, one_line

PATIENCE_S = 2.0
AGAIN_S = 30.0
MAX_NAMES_CHARACTERS = 200


@dataclass(slots=True)
class Work:
    who: str
    """A task or a worker; empty: the run itself."""
    text: str
    since_s: float
    due_s: float
    num_done: int = 0
    num_all: int = 0
    """0: it is not counted."""


class UnderWay:
    """Works by who does them and their kind; of each pair there is one at a time. Safe from any thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._works: dict[tuple[str, str], Work] = {}
        self._told: set[tuple[str, str]] = set()

    def begin(self, who: str, kind: str, text: str, num_all: int = 0) -> Work:
        now_s, key = self._clock(), (who, kind)
        patience_s = AGAIN_S if key in self._told else PATIENCE_S
        self._works[key] = work = Work(who, text, now_s, now_s + patience_s, num_all=num_all)
        return work

    def end(self, who: str, kind: str) -> None:
        """Also of what has not begun."""
        self._works.pop((who, kind), None)

    def tell(self, who: str, kind: str, text: str) -> None:
        """Begin or, with an empty text, end."""
        if text:
            self.begin(who, kind, text)
        else:
            self.end(who, kind)

    def end_all(self, who: str) -> None:
        for key in [key for key in list(self._works) if key[0] == who]:
            self.end(*key)

    @contextmanager
    def doing(self, who: str, kind: str, text: str, num_all: int = 0) -> Iterator[Work]:
        try:
            yield self.begin(who, kind, text, num_all)
        finally:
            self.end(who, kind)

    def due(self) -> list[str]:
        """A line for each text that is to be told now."""
        now_s, lines = self._clock(), dict[str, list[Work]]()
        for key, work in list(self._works.items()):
            if work.due_s <= now_s:
                self._told.add(key)
                work.due_s = now_s + AGAIN_S
                lines.setdefault(work.text, []).append(work)
        return [_line(text, works, now_s) for text, works in lines.items()]

    def now(self) -> list[str]:
        """All texts, whatever was told."""
        return list(dict.fromkeys(work.text for work in list(self._works.values())))


def _line(text: str, works: list[Work], now_s: float) -> str:
    names = one_line(", ".join(filter(None, map(_name, works))), MAX_NAMES_CHARACTERS)
    since = duration(max(now_s - work.since_s for work in works))
    return f"{names + ': ' if names else ''}{text}, {since} so far"


def _name(work: Work) -> str:
    return f"{work.who} {work.num_done}/{work.num_all}".strip() if work.num_all else work.who
