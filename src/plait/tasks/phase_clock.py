"""Which phase a task's rollout is in at each moment. Pure: clock passed in.

While any of its episodes generates, the task is in "rollout"; while all that are under way wait for their environments, in
"environment". Time in which nothing is under way counts for the phase before it, or at the start for the one after it.

- Spans follow each other without a gap from `start_s` to the end, each of another phase than its neighbours.
- One shorter than `MIN_SPAN_S` is joined to the span before; `total_s` still counts its time for its own phase.
"""

from collections import defaultdict

MIN_SPAN_S = 0.05
TAIL_PART = 10
"""The last tenth of a step's generations, at least one, is its tail."""

ROLLOUT, ENVIRONMENT = "rollout", "environment"


class PhaseClock:
    def __init__(self, start_s: float) -> None:
        self.num_generating = 0
        self.num_in_environment = 0
        self.spans: list[tuple[str, float, float]] = []
        """(phase, start, end), in order."""
        self._generation_ends_s: list[float] = []
        self._totals_s: dict[str, float] = defaultdict(float)
        self._phase = ""
        self._since_s = start_s

    def generating(self, change: int, now_s: float) -> None:
        """So many more episodes (less, if negative) wait for tokens."""
        self.num_generating += change
        self._update(now_s)
        self._generation_ends_s += [now_s] * -change

    def in_environment(self, change: int, now_s: float) -> None:
        """So many more episodes (less, if negative) are under way. One may count here while it generates."""
        self.num_in_environment += change
        self._update(now_s)

    def _update(self, now_s: float) -> None:
        if self.num_generating < 0 or self.num_in_environment < 0:
            raise ValueError(
                f"{self.num_generating} generating and {self.num_in_environment} in environment: ended more than began"
            )
        phase = ROLLOUT if self.num_generating else ENVIRONMENT if self.num_in_environment else self._phase
        if phase != self._phase:
            if self._phase:
                self._close(now_s)
            self._phase = phase

    def _close(self, now_s: float) -> None:
        """The phase has lasted until now. A clock that was set back stands still."""
        start_s, end_s = self._since_s, max(now_s, self._since_s)
        self._since_s = end_s
        self._totals_s[self._phase] += end_s - start_s
        if self.spans and (end_s - start_s < MIN_SPAN_S or self.spans[-1][0] == self._phase):
            phase, first_s, _ = self.spans.pop()
            self.spans.append((phase, first_s, end_s))
        elif end_s > start_s:
            self.spans.append((self._phase, start_s, end_s))

    def finish(self, now_s: float) -> list[tuple[str, float, float]]:
        """All spans (phase, start, end) up to now."""
        if self._phase:
            self._close(now_s)
        self._phase = ""
        return self.spans

    @property
    def tail_s(self) -> float | None:
        """From the end of all generations but the tail to the end of the last; None before one has ended."""
        ends_s = sorted(self._generation_ends_s)
        num_others = len(ends_s) - max(1, len(ends_s) // TAIL_PART)
        return ends_s[-1] - ends_s[max(0, num_others - 1)] if ends_s else None

    def total_s(self, phase: str) -> float:
        """Seconds spent in a phase, up to the latest change or `finish`."""
        return self._totals_s.get(phase, 0.0)
