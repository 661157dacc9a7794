"""When a group of devices is busy, folded on a cyclic horizon, and the shift at which one more job overlaps least.

- The horizon is the longest period of the group's jobs, in NUM_BINS bins that hold the busy share of their time.
- A job of a shorter period p is tiled m = round(horizon / p) times, as if its period were horizon / m. If that is off by more than
  DRIFT of p, its phase drifts against the horizon: overlap with it is random, so it lies evenly on all bins with its duty.
- Jobs are closed loops and lock to each other once they contend, so a shift is where to start, not a promise:
  what a co-run costs is estimated from the true periods (`corun`).
"""

from collections.abc import Sequence
from functools import cached_property

import msgspec
import numpy as np
import numpy.typing as npt

from plait.placement.extraction import busy_until
from plait.placement.job_profile import Window

NUM_BINS = 512
NUM_SHIFTS = 128
"""Shifts of a job that are compared, evenly over its period."""
DRIFT = 0.05

Array = npt.NDArray[np.float64]


class Demand(msgspec.Struct, frozen=True):
    """Busy windows of one job on one group, from its anchor (when a period of it began) on."""

    period_s: float
    windows: tuple[Window, ...]
    anchor_s: float = 0.0

    @property
    def duty(self) -> float:
        return sum(end - start for start, end in self.windows) / self.period_s


class CyclicTimeline:
    """Sum of demands; bins are of absolute time modulo the horizon."""

    def __init__(self, demands: Sequence[Demand], horizon_s: float | None = None) -> None:
        self.horizon_s = horizon_s or max((demand.period_s for demand in demands), default=1.0)
        self.busy = np.zeros(NUM_BINS)
        for demand in demands:
            self.busy += self.folded(demand)
        self._least: dict[Demand, float] = {}

    @cached_property
    def _spectrum(self) -> npt.NDArray[np.complex128]:
        return np.fft.rfft(self.busy)

    def folded(self, demand: Demand) -> Array:
        """The demand's busy share of every bin."""
        tiles = self.tiles(demand.period_s)
        if tiles is None:
            return np.full(NUM_BINS, demand.duty)
        period_s = self.horizon_s / tiles
        edges = np.arange(NUM_BINS + 1) * self.horizon_s / NUM_BINS - demand.anchor_s % period_s
        cycles = np.floor(edges / period_s)
        done = cycles * (demand.duty * period_s) + busy_until(self._stretched(demand, period_s), edges - cycles * period_s)
        return np.diff(done) * NUM_BINS / self.horizon_s

    def tiles(self, period_s: float) -> int | None:
        """How often the period goes into the horizon; None if it drifts."""
        tiles = max(1, round(self.horizon_s / period_s))
        return tiles if abs(self.horizon_s / tiles - period_s) <= DRIFT * period_s else None

    def least_overlap(self, demand: Demand) -> float:
        """Of all shifts. Remembered: whoever waits is asked about again as long as nothing changes here."""
        if demand not in self._least:
            self._least[demand] = float(self.overlaps(demand).min())
        return self._least[demand]

    def overlaps(self, demand: Demand) -> Array:
        """By shift k / NUM_SHIFTS of the demand's period: share of the horizon in which it meets what is there."""
        if self.tiles(demand.period_s) is None:
            return np.full(NUM_SHIFTS, demand.duty * float(self.busy.mean()))
        by_bin = np.fft.irfft(self._spectrum * np.conj(np.fft.rfft(self.folded(demand))), NUM_BINS) / NUM_BINS
        tiles = self.tiles(demand.period_s) or 1
        shifts = np.arange(NUM_SHIFTS) * NUM_BINS / (NUM_SHIFTS * tiles)
        return np.interp(shifts, np.arange(NUM_BINS + 1), np.append(by_bin, by_bin[0]))

    @staticmethod
    def _stretched(demand: Demand, period_s: float) -> list[Window]:
        scale = period_s / demand.period_s
        return [(start * scale, end * scale) for start, end in demand.windows]


def micro_shift(demands: Sequence[Demand], timelines: Sequence[CyclicTimeline]) -> tuple[float, float]:
    """How long after its anchor a job best starts so that its demands, one on each timeline, overlap least; and that overlap.

    The overlap is a share of the job's time. Seconds, from 0 to less than its period; the smallest shift of the best.
    """
    if not demands:
        return 0.0, 0.0
    total = np.sum([timeline.overlaps(demand) for demand, timeline in zip(demands, timelines, strict=True)], axis=0)
    best = int(np.flatnonzero(total <= total.min() + 1e-9)[0])
    return best * demands[0].period_s / NUM_SHIFTS, max(0.0, float(total[best]))
