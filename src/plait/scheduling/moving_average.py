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
        for _ in range(count):
            num += 1
            found += (value - found) * (STEP if num > NUM_MEAN else 1 / num)
        self.count, self.value = num, found
