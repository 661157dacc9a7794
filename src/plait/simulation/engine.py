"""A rollout engine in simulated time: rows decode together, and only changes of the batch are events.

Between two changes a whole number of steps runs, each of the cost of the rows and contexts it has. Prompts that an engine lacks are
computed before the next step. A newcomer joins after the step that runs.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import simpy

from plait.simulation.costs import CostModel
from plait.types.chunks import Chunk

Ended = Callable[[str, Chunk, int, bool], None]
"""(engine, chunk, tokens drawn, whether the generation is over)"""


@dataclass(slots=True)
class _Row:
    chunk: Chunk
    left: int
    """Tokens until its chunk ends."""
    is_last: bool
    """The generation ends with the chunk."""
    drawn: int = 0

    @property
    def context_tokens(self) -> int:
        return len(self.chunk.context_tokens) + self.drawn


class SimulatedEngine:
    """The `EngineLink` of an engine. `left_of(chunk)`: how many tokens its generation still draws, which nobody else is told.

    `prefill_of(chunk)`: tokens of its context that have to be computed here; `on_ended` may hand over new chunks at once.
    """

    def __init__(
        self, env: simpy.Environment, name: str, costs: CostModel, left_of: Callable[[Chunk], int],
        prefill_of: Callable[[str, Chunk], int], on_ended: Ended, on_busy: Callable[[str, float, float, int], None] | None = None,
    ) -> None:  # fmt: skip
        self.env, self.name, self.costs = env, name, costs
        self._left_of, self._prefill_of, self._on_ended, self._on_busy = left_of, prefill_of, on_ended, on_busy
        self._rows: dict[str, _Row] = {}
        self._joining: list[_Row] = []
        self._context_tokens = 0
        """Of all rows."""
        self._start_s = 0.0
        self._step_s = 0.0
        """Of the steps under way, on average; 0: it is idle."""
        self._num_steps = 0
        self._plan = 0
        """The number of the latest plan; earlier ones are void."""

    @property
    def num_rows(self) -> int:
        return len(self._rows) + len(self._joining)

    def submit(self, chunks: Sequence[Chunk]) -> None:
        for chunk in chunks:
            left = self._left_of(chunk)
            budget = chunk.budget_tokens + chunk.stretch_tokens
            self._joining.append(_Row(chunk, min(left, budget), left <= budget))
        self._interrupt()

    def cancel(self, request_ids: Sequence[str]) -> None:
        self._advance()
        for request_id in request_ids:
            row = self._rows.pop(request_id, None)
            if row is not None:
                self._context_tokens -= row.context_tokens
        self._joining = [row for row in self._joining if row.chunk.request_id not in request_ids]
        self._begin(self.env.now)

    def release(self, handles: Sequence[str]) -> None:
        """What lies in caches is the caller's to count."""

    def end_stretches(self) -> None:
        self._advance()
        for row in [*self._rows.values(), *self._joining]:
            budget_left = max(1, row.chunk.budget_tokens - row.drawn)
            if row.left > budget_left:
                row.left, row.is_last = budget_left, False
        self._interrupt()

    # ---- time

    def _interrupt(self) -> None:
        """Go on with a changed batch as soon as the step that runs has ended; at once if there is none."""
        if not self._step_s:
            self._begin(self.env.now)
            return
        self._advance()
        done = max(0.0, (self.env.now - self._start_s) / self._step_s)  # Before the start prompts are computed.
        self._begin_later(self._start_s + self._step_s * math.ceil(done - 1e-9))

    def _begin_later(self, time_s: float) -> None:
        self._plan += 1
        plan = self._plan
        event = self.env.timeout(max(0.0, time_s - self.env.now))
        event.callbacks.append(lambda _: self._run_out(plan))

    def _advance(self) -> None:
        """Take in the steps that have ended by now."""
        if not self._step_s:
            return
        num = min(self._num_steps, int((self.env.now - self._start_s) / self._step_s + 1e-9))
        if num:
            self._draw(num)
            self._start_s += num * self._step_s
            self._num_steps -= num

    def _draw(self, num: int) -> None:
        for row in self._rows.values():
            row.drawn += num
            row.left -= num
        self._context_tokens += num * len(self._rows)

    def _run_out(self, plan: int) -> None:
        if plan != self._plan:
            return
        self._advance()
        self._begin(self.env.now)

    def _begin(self, now_s: float) -> None:
        """End what has ended, take in who has come, and plan the steps until the next end."""
        self._plan += 1
        plan = self._plan
        self._step_s = 0.0
        ended = [row for row in self._rows.values() if row.left <= 0]
        for row in ended:
            del self._rows[row.chunk.request_id]
            self._context_tokens -= row.context_tokens
        for row in ended:
            self._on_ended(self.name, row.chunk, row.drawn, row.is_last)
        if plan == self._plan:  # Nothing new was handed over meanwhile.
            self._plan_steps(now_s)

    def _plan_steps(self, now_s: float) -> None:
        prefill_s = sum(self.costs.prefill_s(self._prefill_of(self.name, row.chunk)) for row in self._joining)
        for row in self._joining:
            self._rows[row.chunk.request_id] = row
            self._context_tokens += row.context_tokens
        self._joining = []
        if not self._rows:
            return
        num_rows, num_steps = len(self._rows), min(row.left for row in self._rows.values())
        mean_context = self._context_tokens + num_rows * (num_steps - 1) // 2
        self._num_steps, self._step_s = num_steps, self.costs.decode_step_s(num_rows, mean_context)
        self._start_s = now_s + prefill_s
        end_s = self._start_s + num_steps * self._step_s
        if self._on_busy is not None:
            self._on_busy(self.name, now_s, end_s, num_rows)
        self._begin_later(end_s)
