"""Mean, largest and quantiles of very many values, in bounded memory."""

import math

import msgspec

PER_DECADE = 50
"""Bins; a quantile errs by less than 5 %."""


class Summary(msgspec.Struct, frozen=True):
    """Of values of 0 or more."""

    count: int = 0
    mean: float = 0.0
    median: float = 0.0
    p95: float = 0.0
    largest: float = 0.0


class Distribution:
    def __init__(self) -> None:
        self.count = 0
        self.total = self.largest = 0.0
        self._num_zero = 0
        self._bins: dict[int, int] = {}

    def add(self, value: float) -> None:
        """A value of 0 or more."""
        self.count += 1
        if value <= 0.0:
            self._num_zero += 1
            return
        self.total += value
        if value > self.largest:
            self.largest = value
        index = math.floor(math.log10(value) * PER_DECADE)
        self._bins[index] = self._bins.get(index, 0) + 1

    def add_zeros(self, count: int) -> None:
        """So many values of 0; below 0: so many fewer."""
        self.count += count
        self._num_zero += count

    def quantile(self, share: float) -> float:
        """The geometric middle of the bin that holds it; 0 of nothing."""
        wanted = share * self.count
        seen = self._num_zero
        if seen >= wanted:
            return 0.0
        for index in sorted(self._bins):
            seen += self._bins[index]
            if seen >= wanted:
                return min(self.largest, 10 ** ((index + 0.5) / PER_DECADE))
        return self.largest

    def summary(self) -> Summary:
        mean = self.total / self.count if self.count else 0.0
        return Summary(self.count, mean, self.quantile(0.5), self.quantile(0.95), self.largest)
