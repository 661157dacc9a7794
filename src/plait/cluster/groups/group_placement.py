"""At which of several equal worker groups each job runs: a base model with all of its deployments. Pure, the clock passed in.

- A job that is new starts at the group with the most room left (cold start).
- Once the trace of its calls has told a profile, `placement.Placer` decides, under a policy and the job's bound on slowdown; and
  again when the profile drifts. Who is admitted nowhere stays where it is, and is tried again with its next profile.
- To the placer a group is a node of one device. Which of its nodes is which group is settled only when one comes to be used: then
  it is the group where that job runs already, if it can be.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from plait.placement.decision import Action, Decision
from plait.placement.drift import DriftSettings
from plait.placement.job import DEFAULT_SLO, Job, Pool, Role
from plait.placement.job_profile import JobProfile
from plait.placement.placer import Placer
from plait.placement.policies import Isolated, Pack, Spread, SpreadBackfill
from plait.placement.resource_view import UNLIMITED, Bytes, Node

POLICIES: dict[str, type[Placer]] = {"pack": Pack, "spread": Spread, "spread_backfill": SpreadBackfill, "isolated": Isolated}


@dataclass(slots=True)
class PlacedHere:
    group: str
    num_bytes: int
    """Expected on the device, all of its deployments together."""
    slo: float
    is_placed: bool = False
    """By the placer; else it is where it started, or where it was last."""
    slowdown: float = 1.0
    """That the placer expects."""


class GroupPlacement:
    """`jobs` says where each is to be."""

    def __init__(
        self, groups: Sequence[str], device_bytes: int = UNLIMITED, host_bytes: int | None = None, policy: str = "spread",
        drift: DriftSettings | None = None,
    ) -> None:  # fmt: skip
        self.groups, self._device_bytes = tuple(groups), device_bytes
        memory = Bytes(device_bytes, UNLIMITED if host_bytes is None else host_bytes, UNLIMITED)
        self.placer = POLICIES[policy]([Node(f"slot {n}", "groups", 1, memory) for n in range(len(groups))], drift)
        self.jobs: dict[str, PlacedHere] = {}
        self._groups_of_nodes: dict[str, str] = {}

    def arrive(self, job: str, num_bytes: int, slo: float = DEFAULT_SLO) -> str:
        """Where it starts."""
        used = {name: self._used_bytes(name) for name in self.groups}
        group = min(self.groups, key=lambda name: (used[name] + num_bytes > self._device_bytes, used[name]))
        self.jobs[job] = PlacedHere(group, num_bytes, slo)
        return group

    def leave(self, job: str, now_s: float) -> None:
        here = self.jobs.pop(job, None)
        if here is not None and here.is_placed:
            self._take(self.placer.job_ended(job, now_s), now_s)

    def stay(self, job: str, group: str, now_s: float) -> None:
        """It could not be brought to where it was to be, and is there, unless it has left."""
        here = self.jobs.get(job)
        if here is None:
            return
        if here.is_placed:
            here.is_placed = False
            self._take(self.placer.job_ended(job, now_s), now_s)
        here.group = group

    def profiled(self, job: str, profile: JobProfile, anchor_s: float, num_bytes: int, switch_s: float, now_s: float) -> None:
        """What its trace tells: a period began at `anchor_s`. Bringing it to the device takes `switch_s`."""
        here = self.jobs[job]
        here.num_bytes = num_bytes or here.num_bytes
        if here.is_placed:
            self._take(self.placer.profile_updated(job, profile, now_s, anchor_s), now_s)
            return
        self.placer.profiles[job] = profile
        pool = Pool((Role.ROLLOUT, Role.TRAIN), 1, min(here.num_bytes, self._device_bytes), switch_s)
        self._take([self.placer.submit(Job(job, job, (pool,), here.slo), now_s)], now_s)

    def _take(self, decisions: Sequence[Decision], now_s: float) -> None:
        """Of a job the last decision counts: one that has to leave its place may get it, or another, at once."""
        for decision in decisions:
            for job, slowdown in decision.slowdowns.items():
                if job in self.jobs:
                    self.jobs[job].slowdown = slowdown
        for job, decision in {decision.job_id: decision for decision in decisions}.items():
            if job in self.jobs:
                self._carry_out(decision, self.jobs[job], now_s)

    def _carry_out(self, decision: Decision, here: PlacedHere, now_s: float) -> None:
        if decision.action in (Action.PLACED, Action.MOVED):
            here.is_placed, here.group = True, self._group_at(decision, here.group)
            return
        here.is_placed, here.slowdown = False, 1.0
        if decision.action is Action.QUEUED:  # Nobody waits here: it runs where it is.
            self._take(self.placer.job_ended(decision.job_id, now_s), now_s)

    def _group_at(self, decision: Decision, group: str) -> str:
        """Of the node that the placer has chosen; `group`: where the job is."""
        node = decision.pools[0].slices[0].node_id
        in_use = {part.node_id for each in self.placer.groups.groups.values() for part in each.slices}
        self._groups_of_nodes = {other: name for other, name in self._groups_of_nodes.items() if other in in_use}
        if node not in self._groups_of_nodes:
            free = [name for name in self.groups if name not in self._groups_of_nodes.values()]
            self._groups_of_nodes[node] = group if group in free else min(free, key=self._used_bytes)
        return self._groups_of_nodes[node]

    def _used_bytes(self, group: str) -> int:
        return sum(here.num_bytes for here in self.jobs.values() if here.group == group)
