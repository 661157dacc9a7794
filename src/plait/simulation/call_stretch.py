"""Function calls that are submitted together: one, or several, one after another, with equal times and delays between."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from plait.placement.job import Role
from plait.scheduling.function_call import FunctionCall


@dataclass(slots=True)
class CallStretch:
    """`call` stands for all; it is the first, and the last is `last_call` if that is another function.

    `on_ended` is told how many calls have ended: all, or fewer if the stretch was cut. `fill`: how full a rollout's batches are.
    """

    call: FunctionCall
    role: Role
    call_s: float
    on_ended: Callable[[int], None]
    num_calls: int = 1
    delay_s: float = 0.0
    fill: float = 1.0
    last_call: FunctionCall | None = None
    planned_calls: int = 1
    """Before it was cut: `last_call` is the last of these."""

    @property
    def span_s(self) -> float:
        """From the first start to the last end."""
        return self.num_calls * self.call_s + (self.num_calls - 1) * self.delay_s

    def done_after(self, elapsed_s: float) -> tuple[int, float]:
        """Calls that have ended so long after the first start (or before it), and seconds that the next one has run."""
        if elapsed_s <= 0:
            return 0, 0.0
        cycle_s = self.call_s + self.delay_s
        num_whole = math.floor(elapsed_s / cycle_s) if cycle_s else self.num_calls
        into_s = elapsed_s - num_whole * cycle_s
        is_between = into_s >= self.call_s
        num_ended = min(self.num_calls, num_whole + is_between)
        return num_ended, 0.0 if is_between or num_ended == self.num_calls else into_s

    def calls_like(self, index: int) -> FunctionCall:
        """A call of the same kind as the one of this number."""
        return self.last_call if self.last_call is not None and index == self.planned_calls - 1 else self.call
