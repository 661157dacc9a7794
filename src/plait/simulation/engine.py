"""A rollout engine in simulated time: rows decode together, and only changes of the batch are events.

- Between two changes a whole number of steps runs, each of the cost of the rows and contexts that it has; over one plan the cost is
  taken to grow evenly from its first step to its last.
- Nothing interrupts a step or the computing of prompts: who comes joins, and who is cancelled or cut leaves, after the step under
  way. An idle engine begins at once.
- Before the next step prompts that the engine lacks are computed, together, and caches of chunks that go on are put in place. What
  is fetched from elsewhere comes meanwhile, one after another, and its row joins when it is there.
- Each change takes O(log n) of n rows.
"""

import math
from collections.abc import Callable, Sequence

import simpy

from plait.simulation.costs import CostModel
from plait.simulation.engine_row import GONE, LongestContext, Row, RowEnds
from plait.types.chunks import Chunk

Ended = Callable[[str, Chunk, int, bool], None]
"""(engine, chunk, tokens drawn, whether the generation is over)"""
Busy = Callable[[str, float, float, int], None]
"""(engine, start, end, rows). Spans of one engine never overlap."""
Needs = Callable[[str, Chunk], tuple[int, float]]
"""(engine, chunk) -> (tokens that have to be computed here before it decodes, seconds until the rest has been fetched)"""


class SimulatedEngine:
    """The `EngineLink` of an engine. `left_of(chunk)`: how many tokens its generation still draws, which nobody else is told.

    `on_ended` may hand over new chunks at once.
    """

    def __init__(
        self, env: simpy.Environment, name: str, costs: CostModel, left_of: Callable[[Chunk], int], needs_of: Needs,
        on_ended: Ended, on_busy: Busy | None = None,
    ) -> None:  # fmt: skip
        self.env, self.name, self.costs = env, name, costs
        self._left_of, self._needs_of, self._on_ended, self._on_busy = left_of, needs_of, on_ended, on_busy
        self._rows: dict[str, Row] = {}
        self._joining: list[Row] = []
        self._fetching: dict[str, Row] = {}
        self._fetched_s = 0.0
        """When the last fetch under way is complete."""
        self._ends, self._longest = RowEnds(), LongestContext()
        self._gone: list[Row] = []
        """Rows that leave after the step under way."""
        self._num_rows_ever = 0
        self._step = 0
        """Steps ever, up to the beginning of the plan."""
        self._context_tokens = 0
        """Of all rows then."""
        self._num_steps = 0
        """Of the plan; 0: the engine is idle."""
        self._plan = 0
        """The number of the latest plan or cut; timers of earlier ones are void."""
        self._begun_s = self._start_s = self._first_s = self._more_s = 0.0
        """When the plan began, its first step starts, how long that takes, and how much more each one after takes."""
        self.num_computed_tokens = self.num_decoded_tokens = 0
        self.most_context_tokens = 0
        """That rows ever had together."""

    @property
    def num_rows(self) -> int:
        return len(self._rows) + len(self._joining) + len(self._fetching)

    @property
    def num_steps(self) -> int:
        """Decode steps that have run."""
        return self._step

    @property
    def context_tokens(self) -> int:
        """Of the rows, at the beginning of the plan under way."""
        return self._context_tokens

    # ---- requests

    def submit(self, chunks: Sequence[Chunk]) -> None:
        for chunk in chunks:
            left = self._left_of(chunk)
            row = Row(chunk, left, min(left, chunk.budget_tokens + chunk.stretch_tokens), len(chunk.context_tokens))
            row.prompt_tokens, fetch_s = self._needs_of(self.name, chunk)
            self._fetch(row, fetch_s) if fetch_s else self._joining.append(row)
        if self._joining:
            self._interrupt()

    def _fetch(self, row: Row, fetch_s: float) -> None:
        """Fetches of one engine share its link one after another."""
        self._fetching[row.chunk.request_id] = row
        self._fetched_s = max(self.env.now, self._fetched_s) + fetch_s
        self.env.timeout(self._fetched_s - self.env.now).callbacks.append(lambda _: self._fetched(row))

    def _fetched(self, row: Row) -> None:
        if self._fetching.pop(row.chunk.request_id, None) is not None:
            self._joining.append(row)
            self._interrupt()

    def cancel(self, request_ids: Sequence[str]) -> None:
        """Nothing is told of them any more; fine if they are not here."""
        for request_id in request_ids:
            self._fetching.pop(request_id, None)
            if (row := self._rows.pop(request_id, None)) is not None:
                row.end = GONE
                self._gone.append(row)
        self._joining = [row for row in self._joining if row.chunk.request_id not in request_ids]
        if self._gone:
            self._interrupt()

    def release(self, handles: Sequence[str], went_on: bool = False) -> None:
        """What lies in caches is the caller's to count."""

    def end_stretches(self) -> None:
        """Of the chunks that are here: those past their budgets end after the step under way, the others at their budgets."""
        if self._num_steps:
            self._cut()
        step = self._step + self._num_steps
        for row in self._rows.values():
            num_tokens = min(row.num_tokens, max(row.chunk.budget_tokens, self._drawn(row, step)))
            if num_tokens < row.num_tokens:
                row.num_tokens = num_tokens
                self._enter(row)
        for row in [*self._joining, *self._fetching.values()]:
            row.num_tokens = min(row.num_tokens, row.chunk.budget_tokens)

    def _drawn(self, row: Row, step: int) -> int:
        """By the end of a step."""
        return step - row.joined

    def _enter(self, row: Row) -> None:
        self._ends.put(row, row.joined + row.num_tokens)

    # ---- time

    def _interrupt(self) -> None:
        """Go on with a changed batch as soon as what runs lets go."""
        if self._num_steps:
            self._cut()
        else:
            self._settle()

    def _cut(self) -> None:
        """End the plan with the step under way, or with its first one while prompts are computed."""
        num_steps = max(1, self._steps_within(self.env.now - self._start_s))
        if num_steps < self._num_steps:
            self._num_steps = num_steps
            self._wake_at(self._start_s + self._span_s(num_steps))

    def _span_s(self, num_steps: int) -> float:
        return num_steps * self._first_s + self._more_s * (num_steps * (num_steps - 1) // 2)

    def _steps_within(self, elapsed_s: float) -> int:
        """The steps that have ended or are under way."""
        linear = self._first_s - self._more_s / 2
        root = math.sqrt(max(0.0, linear * linear + 2 * self._more_s * elapsed_s)) + linear
        if elapsed_s <= 0 or root <= 0:
            return 0
        return min(math.ceil(2 * elapsed_s / root - 1e-9), self._num_steps)

    def _wake_at(self, time_s: float) -> None:
        self._plan += 1
        plan = self._plan
        self.env.timeout(max(0.0, time_s - self.env.now)).callbacks.append(lambda _: self._wake(plan))

    def _wake(self, plan: int) -> None:
        if plan == self._plan:
            self._settle()

    def _settle(self) -> None:
        """Take in the steps that have run, end what has ended, and go on with whoever is here."""
        self._plan += 1
        plan = self._plan
        ended = self._draw(self._num_steps) if self._num_steps else []
        self._num_steps = 0
        for row in ended:
            self._leave(row)
            del self._rows[row.chunk.request_id]
        for row in self._gone:
            self._leave(row)
        self._gone = []
        for row in ended:
            self._on_ended(self.name, row.chunk, row.num_tokens, row.num_tokens >= row.left)
        if plan == self._plan:  # Nothing new was handed over meanwhile.
            self._take_in()

    def _draw(self, num_steps: int) -> list[Row]:
        """Do the steps of the plan; the rows that end with them, in order of arrival."""
        self._step += num_steps
        num_tokens = num_steps * (len(self._rows) + len(self._gone))
        self._context_tokens += num_tokens
        self.num_decoded_tokens += num_tokens
        self.most_context_tokens = max(self.most_context_tokens, self._context_tokens)
        self.tell_busy()
        return self._ends.pop_until(self._step)

    def tell_busy(self) -> None:
        """Of the plan that has run."""
        if self._on_busy is not None:
            self._on_busy(self.name, self._begun_s, self.env.now, len(self._rows) + len(self._gone))

    def _leave(self, row: Row) -> None:
        row.end = GONE
        self._context_tokens -= row.context_tokens + self._drawn(row, self._step)

    def _take_in(self) -> None:
        before_s = self._before_s()
        for row in self._joining:
            self._num_rows_ever += 1
            row.number, row.joined = self._num_rows_ever, self._step - row.drawn
            self._rows[row.chunk.request_id] = row
            self._context_tokens += row.context_tokens + row.drawn
            self._enter(row)
            if self.costs.pads_contexts:
                self._longest.put(row)
        self._joining = []
        if self._rows:
            self._plan_steps(before_s)

    def _before_s(self) -> float:
        """What the rows that join take before the next step: prompts, and the caches of chunks that go on."""
        prompts = [row.prompt_tokens for row in self._joining if row.prompt_tokens]
        resumed = [row.context_tokens for row in self._joining if row.chunk.generated_tokens and not row.drawn]
        return (self.prompts_s(prompts) if prompts else 0.0) + sum(map(self.costs.resume_s, resumed))

    def prompts_s(self, prompts: Sequence[int]) -> float:
        """Computed one by one or in one pass, whichever takes less; the truth is below both."""
        self.num_computed_tokens += sum(prompts)
        return min(sum(map(self.costs.prefill_s, prompts)), self.costs.prefill_s(sum(prompts)))

    def _plan_steps(self, before_s: float) -> None:
        self._num_steps = self._steps_to_next_end()
        self._begun_s, self._start_s = self.env.now, self.env.now + before_s
        self._first_s, self._more_s = self._steps_s(self._num_steps)
        self._wake_at(self._start_s + self._span_s(self._num_steps))

    def _steps_to_next_end(self) -> int:
        return self._ends.first() - self._step

    def _steps_s(self, num_steps: int) -> tuple[float, float]:
        """How long the first of so many steps takes, and how much more each one after it."""
        num_rows, context_tokens = len(self._rows), self._seen_tokens()
        first_s = self.costs.decode_step_s(num_rows, context_tokens)
        if num_steps == 1:
            return first_s, 0.0
        last_s = self.costs.decode_step_s(num_rows, context_tokens + (num_steps - 1) * num_rows)
        return first_s, (last_s - first_s) / (num_steps - 1)

    def _seen_tokens(self) -> int:
        """What attention runs over: all contexts, padded to the longest where the engine does so."""
        return len(self._rows) * self._longest.tokens(self._step) if self.costs.pads_contexts else self._context_tokens
