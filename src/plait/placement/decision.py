"""What a placer decides. Executors, and the simulator, do it."""

from enum import StrEnum

import msgspec

from plait.placement.job import Role
from plait.placement.resource_view import Slice


class Action(StrEnum):
    PLACED = "placed"
    """Start the job on these devices, after the shift."""
    MOVED = "moved"
    """Go on with it on these devices instead, after the shift: it drifted."""
    QUEUED = "queued"
    """Wait; a job that ran (its node left, or it drifted and fits nowhere) stops, to go on from its durable state."""
    REJECTED = "rejected"
    """It can never run here."""


class PoolPlacement(msgspec.Struct, frozen=True):
    """The worker group, and its devices, for one pool of the job. `is_shared`: others use, or may come to use, the group too."""

    roles: tuple[Role, ...]
    group_id: int
    slices: tuple[Slice, ...]
    is_shared: bool


class Decision(msgspec.Struct, frozen=True):
    """`slowdowns`: expected T_co / T_solo of every job whose figure may have changed. `estimated_start_s`: of a queued
    job, if known.
    """

    job_id: str
    action: Action
    pools: tuple[PoolPlacement, ...] = ()
    shift_s: float = 0.0
    slowdowns: dict[str, float] = {}
    estimated_start_s: float | None = None
    reason: str = ""
