"""What accepted drafts save of a batch's time.

A row's *lead* is the number of steps that it is ahead of plain decoding. Rows that are all ahead by m steps end m steps earlier. A
row that is ahead of the others saves what its place in a step takes, and the step itself only where it is the last: so a token that
a row of a small batch is ahead saves nearly nothing, where a step takes about as long for one row less. With S(n) seconds for a
step of n rows, leads of the sum L and the least of them m are worth

    m S(1) + (L - m) (S(n) - S(1)) / (n - 1)

which is, if S is a line, all that is sure to be saved whichever row turns out to be the last. A row that ends before others leaves
them the least lead that is theirs. If another row takes its place, nothing runs empty, and its lead is worth a row's share of steps
after all: that is added then. As far as it is known beforehand that others wait for the rows' places, tokens are worth that share
at once, and are no lead.
"""

from collections.abc import Sequence
from math import exp

from plait.drafting.target_time import TargetTime

LEAD_TOKENS = 4.0
"""A row that is so many tokens ahead of another counts 1/e as much as it where the last row is guessed."""


class SavedTime:
    """Rows are known by the names of their requests. Seconds are those of the cost model."""

    def __init__(self, times: TargetTime) -> None:
        self._times = times
        self._leads: dict[str, float] = {}
        self._ended: list[float] = []
        """How far those that ended were ahead of the last, while their places are empty."""
        self._due_s = 0.0

    def start(self, request: str) -> None:
        """A row begins: as far ahead as the last, for it can lose nothing of what the others are sure of."""
        self._leads[request] = self._least
        if self._ended:
            step_s, row_s = self._seconds(len(self._leads)), self._row_s
            self._due_s += self._ended.pop() * max(step_s / len(self._leads) - row_s, 0.0)

    def end(self, request: str) -> None:
        """A row ends; an unknown one is no error."""
        least, row_s = self._least, self._row_s
        lead = self._leads.pop(request, least)
        if not self._leads:
            self._ended.clear()
            return
        self._ended.append(lead - least)
        self._due_s += (self._least - least) * max(self._seconds(1) - row_s, 0.0)

    def take(self, requests: Sequence[str], accepted: Sequence[int], refilled: float = 0.0) -> float:
        """What these accepted tokens save, and what starts and ends have added since the last call; `refilled` is the share of the
        rows whose places others wait for."""
        saved_s, self._due_s = self._due_s, 0.0
        if not any(accepted):
            return saved_s
        before = self._worth
        for request, num in zip(requests, accepted, strict=True):
            self._leads[request] = self._leads.get(request, 0.0) + num * (1 - refilled)
        share_s = self._seconds(len(self._leads)) / len(self._leads)
        return saved_s + self._worth - before + sum(accepted) * refilled * share_s

    def worths(self, requests: Sequence[str], refilled: float = 0.0) -> list[float]:
        """What a token of each row may be expected to save, where a row's share of a step is 1.

        Without others to come, a row's place in a step for each, and what else a step takes for those that may be the last: all
        rows together 1 on average, and those behind more. A guess, where `take` counts what is sure.
        """
        num = len(self._leads)
        if not requests or num < 2 or refilled >= 1:
            return [1.0] * len(requests)
        row_s, share_s, least = self._row_s, self._seconds(num) / num, self._least
        chances = {request: exp((least - lead) / LEAD_TOKENS) for request, lead in self._leads.items()}
        last_s = (self._seconds(1) - row_s) / sum(chances.values())
        own = (row_s + last_s * chances.get(request, 1.0) for request in requests)
        return [refilled + (1 - refilled) * seconds / share_s for seconds in own]

    @property
    def _least(self) -> float:
        return min(self._leads.values(), default=0.0)

    @property
    def _worth(self) -> float:
        least = self._least
        return least * self._seconds(1) + (sum(self._leads.values()) - least) * self._row_s

    @property
    def _row_s(self) -> float:
        """What one row more or less takes of a step."""
        num = len(self._leads)
        return (self._seconds(num) - self._seconds(1)) / (num - 1) if num > 1 else 0.0

    def _seconds(self, num_rows: int) -> float:
        return self._times.seconds(num_rows, num_rows)
