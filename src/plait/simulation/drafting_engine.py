"""An engine whose rows draw several tokens in a step, where drafts pay. Each change of its batch takes O(n) of n rows."""

import math
from collections.abc import Callable
from typing import Any

from plait.simulation.drafts import DraftModel
from plait.simulation.engine import Row, SimulatedEngine


class DraftingEngine(SimulatedEngine):
    """`siblings_of(group)`: how many of a group have finished. Rows advance by what a step is expected to bring."""

    def __init__(self, *arguments: Any, drafts: DraftModel, siblings_of: Callable[[str], int]) -> None:
        super().__init__(*arguments)
        self._drafts, self._siblings_of = drafts, siblings_of
        self._progress: dict[Row, float] = {}
        """Tokens drawn by each row."""
        self._rates: dict[Row, float] = {}
        """Tokens of a step."""
        self._num_draft_tokens = 0
        """Of a step of the plan."""
        self._tokens_per_step = 0.0

    def _drawn(self, row: Row, step: int) -> int:
        progress = self._progress[row] + (step - self._step) * self._rates.get(row, 1.0)
        return min(row.num_tokens, int(progress + 1e-6))

    def _enter(self, row: Row) -> None:
        self._progress.setdefault(row, float(row.drawn))

    def _draw(self, num_steps: int) -> list[Row]:
        self._step += num_steps
        for row in [*self._rows.values(), *self._gone]:
            before = self._drawn(row, self._step)
            self._progress[row] += num_steps * self._rates[row]
            self._context_tokens += self._drawn(row, self._step) - before
            self.num_decoded_tokens += self._drawn(row, self._step) - before
        self.most_context_tokens = max(self.most_context_tokens, self._context_tokens)
        self.tell_busy()
        return [row for row in self._rows.values() if self._drawn(row, self._step) >= row.num_tokens]

    def _leave(self, row: Row) -> None:
        super()._leave(row)
        del self._progress[row], self._rates[row]

    def _steps_to_next_end(self) -> int:
        rows = list(self._rows.values())
        plans = self._drafts.plan([self._siblings_of(row.chunk.group) for row in rows], self._context_tokens)
        self._num_draft_tokens = sum(num for num, _ in plans)
        self._rates = {row: rate for row, (_, rate) in zip(rows, plans, strict=True)}
        self._tokens_per_step = sum(self._rates.values())
        return max(1, min(math.ceil((row.num_tokens - self._progress[row]) / rate - 1e-6) for row, rate in self._rates.items()))

    def _steps_s(self, num_steps: int) -> tuple[float, float]:
        num_rows, drafted = len(self._rows), self._num_draft_tokens
        first_s = self._drafts.step_s(num_rows, self._context_tokens, drafted)
        if num_steps == 1:
            return first_s, 0.0
        last_tokens = self._context_tokens + int((num_steps - 1) * self._tokens_per_step)
        return first_s, (self._drafts.step_s(num_rows, last_tokens, drafted) - first_s) / (num_steps - 1)
