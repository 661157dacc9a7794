"""When a worker was busy, in spans coarse enough to log."""

from plait.cluster.messages import Busy

MAX_SPAN_S = 0.5
"""A span is reported after this long even if work goes on."""


class BusyMeter:
    """Fed with the start and end of each piece of work; gives spans. Clock passed in."""

    def __init__(self) -> None:
        self._open: Busy | None = None

    def add(self, start_s: float, end_s: float, num_tokens: int, task: str = "", num_rows: int = 0) -> list[Busy]:
        """Take a piece of work in; return the spans that are complete with it."""
        done = self.flush() if self._open is not None and self._open.task != task else []
        if self._open is None:
            self._open = Busy(start_s, end_s, num_tokens, task, num_rows)
        else:
            rows = max(num_rows, self._open.num_rows)
            self._open = Busy(self._open.start_s, end_s, self._open.num_tokens + num_tokens, task, rows)
        return done + (self.flush() if end_s - self._open.start_s >= MAX_SPAN_S else [])

    def flush(self) -> list[Busy]:
        """The span so far, when the worker goes idle."""
        done, self._open = ([self._open] if self._open else []), None
        return done
