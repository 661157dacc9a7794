"""A budget that refills steadily. Pure.

Holds a minute's worth at most, and is full at first. A request may take if the bucket has what it asks for, or is full; so one
that asks for more than a minute's worth can be served too, and leaves a debt. Over t seconds no more than
`per_minute * (1 + t / 60)` plus one such request is taken.
"""

ROUNDING_TOKENS = 1e-3
"""What sums of floats may lack; tokens are whole."""


class TokenBucket:
    def __init__(self, per_minute: int, now: float) -> None:
        self.per_minute = per_minute
        self._level = float(per_minute)
        self._as_of = now

    def level(self, now: float) -> float:
        """Tokens that are left; negative: a debt. A clock that goes back refills nothing."""
        elapsed_s = max(0.0, now - self._as_of)
        return min(float(self.per_minute), self._level + elapsed_s * self.per_minute / 60)

    def wait_s(self, tokens: int, now: float) -> float:
        """How long until so many may be taken; 0: now. Infinite if the limit is 0."""
        lacking = min(tokens, self.per_minute) - self.level(now)
        if self.per_minute == 0:
            return float("inf") if tokens else 0.0
        return 0.0 if lacking <= ROUNDING_TOKENS else lacking * 60 / self.per_minute

    def take(self, tokens: int, now: float) -> None:
        """Without asking: see `wait_s`. Negative: give back."""
        self._level = min(float(self.per_minute), self.level(now) - tokens)
        self._as_of = max(now, self._as_of)

    def set_per_minute(self, per_minute: int, now: float) -> None:
        """What is left stays, as far as the new limit holds it; a debt stays too."""
        self._level, self._as_of = min(float(per_minute), self.level(now)), max(now, self._as_of)
        self.per_minute = per_minute
