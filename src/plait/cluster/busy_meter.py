"""When a worker was busy, in spans coarse enough to log. Pure: clock passed in.

- Spans are in order and do not overlap; work that follows at once is in one span, up to `MAX_SPAN_S`.
- A span is of one task, and idle time of more than `MAX_GAP_S` ends it.
- Only where work shorter than `MIN_SPAN_S` alternates do tasks share one. It names no task, and has no rows: its rate says
  nothing about decoding.
"""

from plait.cluster.messages import Busy

MAX_SPAN_S = 0.5
"""A span is reported after this long even if work goes on."""
MIN_SPAN_S = 0.1
"""Alternating work is not told apart more finely than this: else each step of a fast model would be an event."""
MAX_GAP_S = 0.02
"""A pause up to this long, for messages between two pieces of work, counts as work."""


class BusyMeter:
    """Fed with the start and end of each piece of work, in order; gives spans. A clock that was set back stands still."""

    def __init__(self) -> None:
        self._open: Busy | None = None
        self._is_mixed = False
        self._last_s = 0.0

    def add(self, start_s: float, end_s: float, num_tokens: int, task: str = "", num_rows: int = 0) -> list[Busy]:
        """Take a piece of work in; return the spans that are complete with it. `task` is empty for rollouts."""
        start_s = max(start_s, self._last_s)
        piece = Busy(start_s, max(start_s, end_s), num_tokens, task, num_rows)
        self._last_s = piece.end_s
        done = self.flush() if self._open is not None and not self._takes(self._open, piece) else []
        self._open = piece if self._open is None else self._joined(self._open, piece)
        return done + (self.flush() if _length_s(self._open) >= MAX_SPAN_S else [])

    def flush(self) -> list[Busy]:
        """The span so far, when the worker goes idle."""
        done, self._open, self._is_mixed = ([self._open] if self._open else []), None, False
        return done

    def _takes(self, span: Busy, piece: Busy) -> bool:
        if piece.start_s - span.end_s > MAX_GAP_S:
            return False
        if piece.task == span.task and not self._is_mixed:
            return True
        return _length_s(piece) < MIN_SPAN_S and (self._is_mixed or _length_s(span) < MIN_SPAN_S)

    def _joined(self, span: Busy, piece: Busy) -> Busy:
        self._is_mixed = self._is_mixed or piece.task != span.task
        task, num_rows = ("", 0) if self._is_mixed else (span.task, max(span.num_rows, piece.num_rows))
        return Busy(span.start_s, piece.end_s, span.num_tokens + piece.num_tokens, task, num_rows)


def _length_s(span: Busy) -> float:
    return span.end_s - span.start_s
