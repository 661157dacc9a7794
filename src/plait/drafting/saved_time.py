"""What accepted drafts save of a batch's time.

A row's *lead* is the number of steps that it is ahead of plain decoding. Rows that are all ahead by m steps end m steps earlier. A
row that is ahead of the others saves what its place in a step takes, and the step itself only where it is the last: so a token that
a row of a small batch is ahead saves nearly nothing, where a step takes about as long for one row less. With S(n) seconds for a
step of n rows, leads of the sum L and the least of them m are worth

    m S(1) + (L - m) (S(n) - S(1)) / (n - 1)

which is, if S is a line, all that is sure to be saved whichever row turns out to be the last. A row that ends before others leaves
them the least lead that is theirs. If another row takes its place, nothing runs empty, and its lead is worth a row's share of steps
after all: that is added then.
"""

from collections.abc import Sequence

from plait.drafting.target_time import TargetTime


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

    def take(self, requests: Sequence[str], accepted: Sequence[int]) -> float:
        """What these accepted tokens save, and what starts and ends have added since the last call."""
        saved_s, self._due_s = self._due_s, 0.0
        if not any(accepted):
            return saved_s
        before = self._worth
        for request, num in zip(requests, accepted, strict=True):
            self._leads[request] = self._leads.get(request, 0.0) + num
        return saved_s + self._worth - before

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
