"""How many generations to decode at once, found by measured throughput. Pure.

Decoding more rows at once raises throughput until the arithmetic is saturated or the cache is full; past that it only makes
each of them slower. The controller climbs through levels (powers of two up to the limit): it goes up while a level that was
really filled gives `MIN_GAIN` more tokens per second than the level below, and steps back when it does not.
"""

from dataclasses import dataclass

MIN_GAIN = 1.05
"""A level must beat the one below by this factor to be worth its memory and latency."""
FILLED_SHARE = 0.75
"""A measurement counts for a level only when at least this share of its rows ran."""
SMOOTHING = 0.3
"""Weight of the newest measurement in a level's moving average."""
MIN_MEASUREMENTS = 4
"""Measurements before a level is judged."""
PROBE_EVERY = 200
"""Measurements after which the level above is tried again, since loads change."""


@dataclass(slots=True)
class _Level:
    rate: float = 0.0
    count: int = 0

    def add(self, rate: float) -> None:
        self.rate = rate if self.count == 0 else (1 - SMOOTHING) * self.rate + SMOOTHING * rate
        self.count += 1


class ConcurrencyController:
    def __init__(self, max_rows: int, start_rows: int = 8) -> None:
        self.levels = sorted({min(max_rows, 2**k) for k in range(max_rows.bit_length() + 1)})
        self._index = max(i for i, rows in enumerate(self.levels) if rows <= max(1, start_rows))
        self._measured = [_Level() for _ in self.levels]
        self._since_move = 0

    @property
    def limit(self) -> int:
        return self.levels[self._index]

    def observe(self, num_tokens: int, busy_s: float, num_rows: int) -> None:
        """Take in that `num_tokens` were computed in `busy_s` seconds with up to `num_rows` rows at once."""
        if busy_s <= 0 or num_rows < FILLED_SHARE * self.limit:
            return
        self._measured[self._index].add(num_tokens / busy_s)
        self._since_move += 1
        if self._measured[self._index].count >= MIN_MEASUREMENTS:
            self._move()

    def _move(self) -> None:
        here = self._measured[self._index]
        below = self._measured[self._index - 1] if self._index else None
        if below is not None and below.count >= MIN_MEASUREMENTS and here.rate < MIN_GAIN * below.rate:
            self._go(self._index - 1)
            return
        above = self._index + 1
        if above < len(self.levels) and (self._measured[above].count < MIN_MEASUREMENTS or self._since_move >= PROBE_EVERY):
            self._measured[above] = _Level()
            self._go(above)

    def _go(self, index: int) -> None:
        self._index, self._since_move = index, 0
