"""Period, phases and memory of a job, from its trace.

The first strong peak of the autocorrelation (by FFT, all roles together) says roughly how long a period is; the median distance
between starts of the marking role's phases says it exactly, so jitter averages out and single odd steps do not count. Steps of a
closed loop jitter independently: with standard deviation j per step, the median over n steps errs by about 1.25 j / sqrt(n).
Phases are the medians over all whole periods that have the usual number of them; a phase that wraps around is told as two.
"""

from collections import Counter
from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from plait.placement.demand_trace import DemandTrace
from plait.placement.job import Role
from plait.placement.job_profile import JobProfile, Phase, Window, union

MIN_PERIODS = 4
"""A trace tells a period after so many of them."""
NUM_BINS = 8192
MIN_CORRELATION = 0.3
"""Below this, a peak of the autocorrelation is chance."""
FIRST_PEAK = 0.75
"""The first peak of at least this share of the highest one is the period; later ones are its multiples."""
GAP_SHARE = 0.04
"""Gaps shorter than this share of a period lie within a phase; phases shorter than it are noise."""
NEAR = 0.3
"""Steps that differ from the rough period by more than this share of it are outliers."""
MIN_REGULAR = 0.6
"""Share of steps that must not be outliers."""


class Extraction(msgspec.Struct, frozen=True):
    """Either a profile, or the reason why there is none (yet). `spread`: usual deviation of a step, as a share of the period."""

    profile: JobProfile | None
    reason: str = ""
    anchor_s: float = 0.0
    spread: float = 0.0


def extract(trace: DemandTrace) -> Extraction:
    start_s, end_s = trace.span()
    if end_s <= start_s:
        return Extraction(None, "no call was recorded")
    rough_s = _rough_period_s(trace, start_s, end_s)
    if rough_s is None:
        return Extraction(None, f"no period within {end_s - start_s:.0f} s of trace")
    bursts = {role: _bursts(trace.intervals(role), GAP_SHARE * rough_s) for role in trace.roles()}
    marks, lag = _marks(bursts, rough_s, start_s)
    if len(marks) <= MIN_PERIODS * lag:
        return Extraction(None, f"fewer than {MIN_PERIODS} periods of about {rough_s:.0f} s")
    steps = marks[lag:] - marks[:-lag]
    regular = steps[np.abs(steps - rough_s) <= NEAR * rough_s]
    if len(regular) < MIN_REGULAR * len(steps):
        return Extraction(None, f"aperiodic: {len(steps) - len(regular)} of {len(steps)} steps are far from {rough_s:.0f} s")
    period_s = float(np.median(regular))
    spread = float(np.median(np.abs(regular - period_s))) / period_s
    starts = [
        float(mark) for mark, step in zip(marks[:-lag:lag], steps[::lag], strict=True) if abs(step - rough_s) <= NEAR * rough_s
    ]
    if not starts:
        return Extraction(None, f"aperiodic: no period of about {rough_s:.0f} s begins with a regular step")
    phases = [phase for role in bursts for phase in _phases(trace, role, bursts[role], starts, period_s)]
    profile = JobProfile(period_s, tuple(sorted(phases, key=lambda phase: (phase.offset_s, phase.role))))
    return Extraction(profile, anchor_s=starts[-1], spread=spread)


def _rough_period_s(trace: DemandTrace, start_s: float, end_s: float) -> float | None:
    correlation = _autocorrelation([_coverage(trace.intervals(role), start_s, end_s) for role in trace.roles()])
    lags = correlation[: NUM_BINS // (MIN_PERIODS - 1)]
    below = np.flatnonzero(lags <= 0)
    if not len(below):
        return None
    tail = lags[below[0] :]
    highest = float(tail.max())
    if highest < MIN_CORRELATION:
        return None
    first = int(np.flatnonzero(tail >= FIRST_PEAK * highest)[0])
    rest = np.flatnonzero(tail[first:] <= 0)
    lobe = tail[first : first + int(rest[0]) if len(rest) else None]
    return float(below[0] + first + int(lobe.argmax())) * (end_s - start_s) / NUM_BINS


def _coverage(intervals: Sequence[Window], start_s: float, end_s: float) -> npt.NDArray[np.float64]:
    """Share of each bin that is busy: differences of the busy time so far."""
    edges = np.linspace(start_s, end_s, NUM_BINS + 1)
    return np.diff(busy_until(intervals, edges)) * NUM_BINS / (end_s - start_s)


def busy_until(windows: Sequence[Window], times_s: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Seconds covered by these disjoint windows, in order, before each time."""
    if not windows:
        return np.zeros(len(times_s))
    bounds = np.asarray(windows, dtype=np.float64)
    done = np.concatenate(([0.0], np.cumsum(bounds[:, 1] - bounds[:, 0])))
    index = np.searchsorted(bounds[:, 0], times_s, side="right")
    last = np.maximum(index - 1, 0)
    return np.where(index > 0, done[last] + np.minimum(times_s, bounds[last, 1]) - bounds[last, 0], 0.0)


def _autocorrelation(signals: Sequence[npt.NDArray[np.float64]]) -> npt.NDArray[np.float64]:
    """Of all signals together, 1 at lag 0, not biased towards short lags; zeros if nothing ever changes."""
    total = np.zeros(NUM_BINS)
    for signal in signals:
        spectrum = np.fft.rfft(signal - signal.mean(), 2 * NUM_BINS)
        total += np.fft.irfft(np.abs(spectrum) ** 2)[:NUM_BINS]
    total *= NUM_BINS / np.arange(NUM_BINS, 0, -1)
    return total / total[0] if total[0] > 1e-9 else np.zeros(NUM_BINS)


def _bursts(intervals: Sequence[Window], gap_s: float) -> list[Window]:
    return [(start, end) for start, end in union(intervals, gap_s) if end - start > gap_s / 4]


def _marks(bursts: dict[Role, list[Window]], rough_s: float, start_s: float) -> tuple[npt.NDArray[np.float64], int]:
    """Starts of the phases of the role that has nearest to one a period, and how many of them make a period."""
    best: tuple[float, npt.NDArray[np.float64], int] = (float("inf"), np.zeros(0), 1)
    for windows in bursts.values():
        marks = np.asarray([start for start, _ in windows if start >= start_s])
        if len(marks) < 2:
            continue
        per_period = rough_s / float(np.mean(np.diff(marks)))
        lag = max(1, round(per_period))
        distance = abs(per_period - lag) + lag - 1
        if distance < best[0]:
            best = (distance, marks, lag)
    return best[1], best[2]


def _phases(trace: DemandTrace, role: Role, windows: Sequence[Window], starts: Sequence[float], period_s: float) -> list[Phase]:
    per_cycle = [_cut(windows, start, period_s) for start in starts]
    usual = Counter(len(cut) for cut in per_cycle).most_common(1)[0][0]
    if not usual:
        return []
    bounds = np.median(np.asarray([cut for cut in per_cycle if len(cut) == usual]), axis=0)
    devices, num_bytes = trace.peaks(role)
    return [Phase(role, float(start), float(end - start), devices, num_bytes) for start, end in bounds]


def _cut(windows: Sequence[Window], start_s: float, period_s: float) -> list[Window]:
    """What of the windows lies in the period from `start_s` on, counted from there; slivers are left out."""
    inside = [(max(start - start_s, 0.0), min(end - start_s, period_s)) for start, end in windows]
    return [(start, end) for start, end in inside if end - start > GAP_SHARE * period_s]
