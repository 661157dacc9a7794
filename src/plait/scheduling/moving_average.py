"""An exponential average that starts as a plain mean."""

STEP = 0.2
"""Weight of the latest value, once there are 1 / STEP of them."""
NUM_MEAN = round(1 / STEP)


class MovingAverage:
    __slots__ = ("count", "value")

    def __init__(self) -> None:
        self.count = 0
        self.value = 0.0

    def add(self, value: float, count: int = 1) -> None:
        """So many equal values, one after another."""
        num, found = self.count, self.value
        self.count = last = num + count
        if num < NUM_MEAN:
            for early in range(num + 1, min(last, NUM_MEAN) + 1):
                found += (value - found) * (1 / early)
            count = last - NUM_MEAN
        for _ in range(count):
            found += (value - found) * STEP
        self.value = found

    def copy(self) -> "MovingAverage":
        """That goes its own way."""
        other = MovingAverage()
        other.count, other.value = self.count, self.value
        return other
