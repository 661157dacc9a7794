"""Amounts over time in a bounded number of bins: as the time grows, bins become wider."""

NUM_BINS = 512


class Timeline:
    """What is added for a stretch of time lies evenly on it. From time 0 on; `bin_s` doubles when the bins do not reach."""

    def __init__(self, bin_s: float = 60.0, num_bins: int = NUM_BINS) -> None:
        if num_bins < 2 or num_bins % 2:
            raise ValueError(f"num_bins is {num_bins}: pairs of bins have to merge.")
        self.bin_s = bin_s
        self.amounts = [0.0] * num_bins

    def add(self, start_s: float, end_s: float, amount: float) -> None:
        if end_s > self.bin_s * len(self.amounts):
            self._widen(end_s)
        first, last = int(start_s / self.bin_s), int(end_s / self.bin_s)
        if first == last or end_s <= start_s:
            self.amounts[min(first, len(self.amounts) - 1)] += amount
            return
        amounts, bin_s, per_s = self.amounts, self.bin_s, amount / (end_s - start_s)
        amounts[first] += per_s * ((first + 1) * bin_s - start_s)
        whole = per_s * bin_s
        for index in range(first + 1, last):
            amounts[index] += whole
        if last < len(amounts):
            amounts[last] += per_s * (end_s - last * bin_s)

    def _widen(self, end_s: float) -> None:
        while end_s > self.bin_s * len(self.amounts):
            self.widen(2 * self.bin_s)

    def widen(self, bin_s: float) -> None:
        """`bin_s`: what it is, times a power of two."""
        while self.bin_s < bin_s:
            merged = [self.amounts[i] + self.amounts[i + 1] for i in range(0, len(self.amounts), 2)]
            self.amounts = merged + [0.0] * len(merged)
            self.bin_s *= 2

    def until(self, end_s: float) -> tuple[float, ...]:
        """The bins up to the one that holds `end_s`."""
        return tuple(self.amounts[: min(len(self.amounts), int(end_s / self.bin_s) + 1)])
