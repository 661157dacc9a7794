"""Which phase a task's rollout is in at each moment. Pure: clock passed in.

While any of its episodes generates, the task is in "rollout"; when all that remain wait for their environments, in
"environment". Spans shorter than `MIN_SPAN_S` are joined to the one before.
"""

from dataclasses import dataclass, field

MIN_SPAN_S = 0.05


@dataclass(slots=True)
class PhaseClock:
    start_s: float
    num_generating: int = 0
    num_in_environment: int = 0
    spans: list[tuple[str, float, float]] = field(default_factory=list)
    _phase: str = ""
    _since_s: float = 0.0

    def generating(self, change: int, now_s: float) -> None:
        self.num_generating += change
        self._update(now_s)

    def in_environment(self, change: int, now_s: float) -> None:
        self.num_in_environment += change
        self._update(now_s)

    def _update(self, now_s: float) -> None:
        phase = "rollout" if self.num_generating else "environment" if self.num_in_environment else self._phase
        if phase != self._phase:
            self._close(now_s)
            self._phase, self._since_s = phase, now_s

    def _close(self, now_s: float) -> None:
        if not self._phase:
            return
        if self.spans and (now_s - self._since_s < MIN_SPAN_S or self.spans[-1][0] == self._phase):
            phase, start_s, _ = self.spans.pop()
            self.spans.append((phase, start_s, now_s))
        else:
            self.spans.append((self._phase, self._since_s, now_s))

    def finish(self, now_s: float) -> list[tuple[str, float, float]]:
        """All spans (phase, start, end) up to now."""
        self._close(now_s)
        self._phase = ""
        return self.spans

    def total_s(self, phase: str) -> float:
        return sum(end - start for name, start, end in self.spans if name == phase)
