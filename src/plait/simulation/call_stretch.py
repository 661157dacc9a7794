"""Function calls that are submitted together: one, or several, one after another, with equal times and delays between."""

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from plait.placement.job import Role
from plait.scheduling.function_call import FunctionCall


class Progress(NamedTuple):
    num_ended: int
    ran_s: float
    """Of the call that runs."""
    idle_since_s: float | None
    """When the latest call ended; None while one runs, or has yet to start."""


class CallStretch(msgspec.Struct):
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
    ended_s: float | None = None
    """When its last call ended, if nobody was told then: it was ended in the delay after it."""

    def end_s(self, start_s: float) -> float:
        """When the last call ends, if the first one starts then. Added up call by call: the same to the last bit as if each had
        been an event."""
        for _ in range(self.num_calls - 1):
            start_s = start_s + self.call_s + self.delay_s
        return start_s + self.call_s

    def progress(self, start_s: float, now_s: float) -> "Progress":
        for index in range(self.num_calls):
            end_s = start_s + self.call_s
            if now_s < end_s:
                return Progress(index, max(0.0, now_s - start_s), None)
            start_s = end_s + self.delay_s
            if now_s < start_s:
                return Progress(index + 1, 0.0, end_s)
        return Progress(self.num_calls, 0.0, end_s)

    def calls_like(self, index: int) -> FunctionCall:
        """A call of the same kind as the one of this number."""
        return self.last_call if self.last_call is not None and index == self.planned_calls - 1 else self.call
