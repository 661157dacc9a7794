"""How many generations to decode at once, found by measured throughput. Pure.

Decoding more rows at once raises throughput until the arithmetic is saturated or the cache is full; past that it only makes each
of them slower. The controller climbs levels (powers of two up to the limit) by trials: it measures the level it is at, tries a
neighbour, and moves there if that pays.

- A level is worth its memory and latency only if it gives `MIN_GAIN` times the rate of the level below.
- Only measurements taken one right after the other are compared, so a change of load cannot be mistaken for a gain.
- Where no neighbour pays it stays, and tries again after a while that doubles each time; at once if the rate changes by `CHANGE`.
- A span whose rows were not filled, or not yet drained, says nothing about its level.
"""

from statistics import median

MIN_GAIN = 1.05
FILLED_SHARE = 0.75
"""A measurement counts for a level only when at least this share of its rows ran."""
NUM_SETTLING = 1
"""Measurements left out after each move: rows are still being filled, and prompts computed."""
NUM_MEASUREMENTS = 4
"""A level's rate is the median of so many."""
MIN_STAY, MAX_STAY = 40, 320
"""Measurements between two rounds of trials, where nothing changes."""
CHANGE = 1.25
"""A rate that differs from the settled one by this factor means another load."""
MAX_UNFILLED = 8
"""A trial of the level above ends when so many spans in a row did not fill it."""

UP, DOWN = 1, -1


class ConcurrencyController:
    def __init__(self, max_rows: int, start_rows: int = 8) -> None:
        self.levels = sorted({min(max_rows, 2**k) for k in range(max_rows.bit_length() + 1)})
        self._base = max(i for i, rows in enumerate(self.levels) if rows <= max(1, start_rows))
        self._base_rate = 0.0
        self._trial = 0
        """UP or DOWN while that neighbour is tried, else 0."""
        self._untried = [UP, DOWN]
        """Trials to come before it stays."""
        self._rates: list[float] = []
        self._num_to_skip = 0
        self._num_unfilled = 0
        self._settled_rate = 0.0
        self._stay = MIN_STAY
        self._stayed = 0

    @property
    def limit(self) -> int:
        return self.levels[self._base + self._trial]

    def observe(self, num_tokens: int, busy_s: float, num_rows: int) -> None:
        """Take in that `num_tokens` were computed in `busy_s` seconds with up to `num_rows` rows at once."""
        if num_rows < FILLED_SHARE * self.limit:
            self._note_unfilled()
        elif num_rows <= self.limit and busy_s > 0 and num_tokens > 0:
            self._num_unfilled = 0
            self._measure(num_tokens / busy_s)

    def _note_unfilled(self) -> None:
        self._num_unfilled += 1
        if self._trial == UP and self._num_unfilled >= MAX_UNFILLED:
            self._end_trial()

    def _measure(self, rate: float) -> None:
        if self._num_to_skip:
            self._num_to_skip -= 1
            return
        self._rates.append(rate)
        if len(self._rates) == NUM_MEASUREMENTS:
            rate, self._rates = median(self._rates), []
            if self._trial:
                self._judge_trial(rate)
            else:
                self._judge_base(rate)

    def _judge_base(self, rate: float) -> None:
        self._base_rate = rate
        if not self._untried:
            self._judge_stay(rate)
        self._start_trial()

    def _judge_stay(self, rate: float) -> None:
        self._settled_rate = self._settled_rate or rate
        self._stayed += NUM_MEASUREMENTS
        has_changed = not 1 / CHANGE < rate / self._settled_rate < CHANGE
        if has_changed or self._stayed >= self._stay:
            self._stay = MIN_STAY if has_changed else min(2 * self._stay, MAX_STAY)
            self._untried = [UP, DOWN]

    def _start_trial(self) -> None:
        """Try the next neighbour there is; without one, stay."""
        self._untried = [way for way in self._untried if 0 <= self._base + way < len(self.levels)]
        if self._untried:
            self._settled_rate, self._stayed = 0.0, 0
            self._go(self._untried[0])

    def _judge_trial(self, rate: float) -> None:
        pays = rate >= MIN_GAIN * self._base_rate if self._trial == UP else rate * MIN_GAIN > self._base_rate
        if not pays:
            return self._end_trial()
        way = self._trial
        self._base, self._base_rate, self._untried, self._stay = self._base + way, rate, [way], MIN_STAY
        self._trial = 0
        self._start_trial()

    def _end_trial(self) -> None:
        """Back to the level it came from, which is measured anew before the next trial."""
        self._untried.remove(self._trial)
        self._go(0)

    def _go(self, trial: int) -> None:
        self._trial, self._rates, self._num_to_skip, self._num_unfilled = trial, [], NUM_SETTLING, 0
