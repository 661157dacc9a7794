"""The systems that PlexRL is compared with, and its own policies, by name: how they change jobs, and who places those."""

from collections.abc import Callable, Mapping, Sequence

import msgspec

from plait.simulation.job_shape import JobShape
from plait.simulation.plexrl_jobs import colocated, synchronous


class JobSystem(msgspec.Struct, frozen=True):
    """`policy`: of `cluster.POLICIES`."""

    policy: str
    adapt: Callable[[Sequence[JobShape]], Sequence[JobShape]] = tuple


SYSTEMS: Mapping[str, JobSystem] = {
    "colocated": JobSystem("isolated", colocated),
    "split-sync": JobSystem("isolated", synchronous),
    "split-async": JobSystem("isolated"),
    "pack": JobSystem("pack"),
    "spread": JobSystem("spread"),
    "spread+backfill": JobSystem("spread+backfill"),
}
"""`split-async`: every job on devices of its own, rolling out beside training, as jobs come from `plexrl_jobs`."""
