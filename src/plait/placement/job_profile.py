"""What a trace says about a kind of job: its period, and in which windows of it which role is busy."""

import math
from collections.abc import Collection, Iterable

import msgspec

from plait.placement.job import Job, Role
from plait.types.errors import ConfigError

Window = tuple[float, float]
"""Start and end, in seconds from the start of the period."""


class Phase(msgspec.Struct, frozen=True):
    """One busy window of a period. `num_devices` and `num_bytes` are the most that a call of it had."""

    role: Role
    offset_s: float
    duration_s: float
    num_devices: int = 1
    num_bytes: int = 0

    @property
    def end_s(self) -> float:
        return self.offset_s + self.duration_s


class JobProfile(msgspec.Struct, frozen=True):
    """Phases in order of their offsets; none reaches beyond the period (one that does is told as two)."""

    period_s: float
    phases: tuple[Phase, ...]

    def __post_init__(self) -> None:
        if not (math.isfinite(self.period_s) and self.period_s > 0):
            raise ConfigError(f"period_s is {self.period_s}.", "A period is a finite number of seconds above 0.")
        for phase in self.phases:
            if phase.offset_s < 0 or phase.duration_s <= 0 or phase.end_s > self.period_s * (1 + 1e-9):
                raise ConfigError(f"{phase} is not within a period of {self.period_s} s.", "Tell a phase that wraps as two.")

    def windows(self, roles: Collection[Role]) -> list[Window]:
        """When any of these roles is busy: disjoint, in order."""
        return union((phase.offset_s, min(phase.end_s, self.period_s)) for phase in self.phases if phase.role in roles)

    def duty(self, roles: Collection[Role]) -> float:
        """Share of the period in which any of these roles is busy."""
        return sum(end - start for start, end in self.windows(roles)) / self.period_s


def union(windows: Iterable[Window], gap_s: float = 0.0) -> list[Window]:
    """Windows that overlap, or are no further than `gap_s` apart, become one."""
    merged: list[Window] = []
    for start, end in sorted(windows):
        if merged and start <= merged[-1][1] + gap_s:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def loads(job: Job, profile: JobProfile) -> list[float]:
    """By pool: the share of a period that it takes of a group it shares, each phase with one switch before it."""
    return [profile.duty(pool.roles) + len(profile.windows(pool.roles)) * pool.switch_s / profile.period_s for pool in job.pools]
