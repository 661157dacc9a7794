"""Which of an engine's many reports are worth an event. Pure: their own times are the clock.

At most one in `EVERY_S` while it works; sooner when it goes idle, at most one in `IDLE_EVERY_S`; and the last that was left out.
"""

from plait.observe.events import EngineSample

EVERY_S = 10.0
IDLE_EVERY_S = 1.0


class EngineSampler:
    def __init__(self) -> None:
        self.latest: dict[str, EngineSample] = {}
        """Of each engine, told or not."""
        self._told: dict[str, EngineSample] = {}

    def take(self, sample: EngineSample) -> EngineSample | None:
        """The sample if it is to be told."""
        self.latest[sample.engine] = sample
        last = self._told.get(sample.engine)
        is_idle = sample.num_rows == 0 and sample.num_waiting == 0
        if last is not None and sample.time_s - last.time_s < (IDLE_EVERY_S if is_idle else EVERY_S):
            return None
        self._told[sample.engine] = sample
        return sample

    def flush(self) -> list[EngineSample]:
        """The latest of each engine, where it was not told yet."""
        untold = [sample for name, sample in self.latest.items() if sample is not self._told.get(name)]
        self._told.update({sample.engine: sample for sample in untold})
        return untold
