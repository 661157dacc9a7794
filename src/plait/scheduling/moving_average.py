"""An exponential average that starts as a plain mean."""

STEP = 0.2
"""Weight of the latest value, once there are 1 / STEP of them."""


class MovingAverage:
    __slots__ = ("count", "value")

    def __init__(self) -> None:
        self.count = 0
        self.value = 0.0

    def add(self, value: float) -> None:
        self.count += 1
        self.value += (value - self.value) * max(1 / self.count, STEP)
