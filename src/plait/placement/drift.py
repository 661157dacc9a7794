"""When a job's demand no longer is what it was placed for.

A profile has drifted when its period, or the busy share of a role, or the start of a phase differs by more than `threshold`. It
counts after `confirmations` such profiles in a row, the last two of which must agree with each other, and not within `cooldown_s`
of the last placement: so that noise, a passing spell and a re-placement itself do not set off the next.
"""

from collections.abc import Callable

import msgspec

from plait.placement.extraction import Extraction
from plait.placement.job import Role
from plait.placement.job_profile import JobProfile

Look = Callable[[], Extraction]
"""At a trace that is complete."""


class DriftSettings(msgspec.Struct, frozen=True):
    """`threshold`: a share of the period."""

    threshold: float = 0.15
    confirmations: int = 3
    cooldown_s: float = 600.0


class DriftWatch:
    """Of one job; told its placement's profile, then each later one."""

    def __init__(self, placed: JobProfile, now_s: float, settings: DriftSettings | None = None) -> None:
        self._settings = settings or DriftSettings()
        self.placed(placed, now_s)

    def placed(self, profile: JobProfile, now_s: float) -> None:
        self._profile, self._last, self._placed_s, self._count = profile, profile, now_s, 0
        self._unseen: list[tuple[Look, float]] = []

    def due_looks(self, look: Look, now_s: float) -> list[tuple[Look, float]]:
        """Those, of this one and all before it, that are to be observed now, with their times: none, until all of them together
        could confirm a drift. So the traces of who ends before that are never looked at."""
        self._unseen.append((look, now_s))
        if self._count + len(self._unseen) < self._settings.confirmations:
            return []
        due, self._unseen = self._unseen, []
        return due

    def observe(self, profile: JobProfile, now_s: float) -> bool:
        """Whether it is time to place the job anew, for this profile."""
        is_settled = distance(self._last, profile) <= self._settings.threshold
        self._last = profile
        self._count = self._count + 1 if distance(self._profile, profile) > self._settings.threshold else 0
        return self._count >= self._settings.confirmations and is_settled and self.is_due(now_s)

    def is_due(self, now_s: float) -> bool:
        """Whether the cooldown is over."""
        return now_s >= self._placed_s + self._settings.cooldown_s


def distance(before: JobProfile, after: JobProfile) -> float:
    """The largest relative change of the period, of a role's duty, or of a phase's place in the period (if there are as many)."""
    changes = [abs(after.period_s - before.period_s) / before.period_s]
    for role in Role:
        changes.append(abs(after.duty([role]) - before.duty([role])))
        old, new = before.windows([role]), after.windows([role])
        if len(old) == len(new):
            changes += [_apart(o[0] / before.period_s, n[0] / after.period_s) for o, n in zip(old, new, strict=True)]
    return max(changes)


def _apart(first: float, second: float) -> float:
    """On a circle of length 1."""
    around = abs(first - second) % 1.0
    return min(around, 1.0 - around)
