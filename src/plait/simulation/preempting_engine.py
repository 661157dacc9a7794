"""The engine to compare with: it admits what fits now, reserves nothing, and gives up its newest row when its cache overflows.

So do engines with paged caches by default. What a row that was given up had drawn is computed again when it comes back; prompts
stay, for siblings share them.
"""

from collections import deque
from collections.abc import Sequence
from typing import Any

from plait.simulation.engine import Row, SimulatedEngine


class PreemptingEngine(SimulatedEngine):
    """Of `cache_tokens`, whatever is submitted."""

    def __init__(self, *arguments: Any, cache_tokens: int, max_rows: int) -> None:
        super().__init__(*arguments)
        self._cache_tokens, self._max_rows = cache_tokens, max_rows
        self._waiting: deque[Row] = deque()
        self.num_preemptions = 0

    @property
    def num_rows(self) -> int:
        return super().num_rows + len(self._waiting)

    def cancel(self, request_ids: Sequence[str]) -> None:
        self._waiting = deque(row for row in self._waiting if row.chunk.request_id not in request_ids)
        super().cancel(request_ids)

    def _take_in(self) -> None:
        while len(self._rows) > 1 and self._context_tokens + len(self._rows) > self._cache_tokens:
            self._preempt()
        self._waiting += self._joining
        self._joining = []
        used_tokens, num_rows = self._context_tokens + len(self._rows), len(self._rows)
        while self._waiting and num_rows < self._max_rows:
            needed_tokens = self._waiting[0].context_tokens + self._waiting[0].drawn + 1
            if num_rows and used_tokens + needed_tokens > self._cache_tokens:
                break
            self._joining.append(self._waiting.popleft())
            used_tokens, num_rows = used_tokens + needed_tokens, num_rows + 1
        super()._take_in()

    def _preempt(self) -> None:
        """The newest row, to the front of those that wait."""
        _, row = self._rows.popitem()
        self._leave(row)
        row.drawn = row.prompt_tokens = self._drawn(row, self._step)
        self._waiting.appendleft(row)
        self.num_preemptions += 1

    def _steps_to_next_end(self) -> int:
        room = (self._cache_tokens - self._context_tokens) // len(self._rows) if len(self._rows) > 1 else self._cache_tokens
        return min(super()._steps_to_next_end(), max(1, room))
