"""Keeps an engine for a request that is next, does not fit, and was passed over too often. Pure.

One request at a time. Its engine takes nothing else until it has room: at most until the chunks that run there have ended. It
starts sooner if another engine has room sooner.
"""

from collections.abc import Sequence

from plait.rollout.engine_state import EngineState
from plait.rollout.group import Sample


class Reservation:
    def __init__(self) -> None:
        self.sample: Sample | None = None
        self._engine = ""
        """Which drains; empty: to be chosen."""

    def note_bypass(self, sample: Sample, max_bypasses: int) -> None:
        """A chunk was placed past it."""
        sample.num_bypasses += 1
        if self.sample is None and sample.num_bypasses >= max_bypasses:
            self.sample, self._engine = sample, ""

    def release(self, sample: Sample) -> None:
        """It runs, or has gone."""
        if self.sample is sample:
            self.sample = None

    def lose(self, engine: str | None) -> None:
        """That engine was lost; None: all were."""
        if engine in (None, self._engine):
            self._engine = ""

    def others(self, engines: Sequence[EngineState], footprint_tokens: int) -> Sequence[EngineState]:
        """The engines on which others may start; all of them, if nothing is reserved."""
        if self.sample is None:
            return engines
        able = [engine for engine in engines if engine.cache_tokens >= footprint_tokens]
        if self._engine not in [engine.name for engine in able]:
            self._engine = max(able, key=lambda e: (e.num_rows < e.max_rows, e.free_tokens)).name
        return [engine for engine in engines if engine.name != self._engine]
