"""How worker groups stand at one moment, for events and metrics. Torch-free."""

from collections.abc import Iterator

import msgspec

from plait.cluster.groups.worker_groups import WorkerGroups


class GroupState(msgspec.Struct, frozen=True, kw_only=True):
    """Totals are since the controller started."""

    name: str
    deployments: tuple[str, ...]
    up_s: float
    busy_s: float
    num_calls: int
    num_switches: int
    num_moves: int
    """Jobs that came here from another group."""


class JobState(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    group: str
    slowdown: float
    """Measured while its latest profile was told: time that passed, over time without waiting for others."""
    expected_slowdown: float
    """By the placer."""
    max_slowdown: float
    period_s: float | None
    """None: its trace does not tell one."""


def group_states(groups: WorkerGroups) -> Iterator[GroupState]:
    now_s = groups.clock()
    for name, group in groups.groups.items():
        counters, demand = group.dispatcher.counters, group.dispatcher.demand
        yield GroupState(
            name=name, deployments=group.deployments, up_s=now_s - groups.started_s, busy_s=demand.busy_until_s(now_s),
            num_calls=counters.num_calls, num_switches=counters.num_switches, num_moves=groups.num_moves[name],
        )  # fmt: skip


def job_states(groups: WorkerGroups) -> Iterator[JobState]:
    for name, placed in groups.placement.jobs.items():
        demand = groups.demands[name]
        yield JobState(
            name=name, group=groups.group_of(name), slowdown=demand.slowdown, expected_slowdown=placed.slowdown,
            max_slowdown=placed.slo, period_s=demand.latest.profile.period_s if demand.latest.profile else None,
        )  # fmt: skip
