"""The worker groups that jobs share, by name, and which job is where. Torch-free.

A job is a base model: its deployments are at one group, and move together. Traces of calls are kept here (`job_demand`), decisions
are the placement's (`group_placement`), `placement_loop` carries them out. A job whose deployments have routes from the start is
nobody's to place: each of them is where its route says.
"""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Protocol

from plait.cluster.executors.carrier import Executor
from plait.cluster.executors.process import ProcessExecutor
from plait.cluster.groups.group_demand import GroupDemand
from plait.cluster.groups.group_placement import GroupPlacement
from plait.cluster.groups.job_demand import JobDemand
from plait.cluster.groups.messages import ConfigureGroup
from plait.cluster.groups.own_times import OwnTimes
from plait.cluster.groups.router import Router
from plait.cluster.groups.worker_group import WorkerGroup
from plait.placement.demand_trace import FunctionRecord
from plait.placement.job import DEFAULT_SLO
from plait.scheduling.orders import ORDERS
from plait.types.errors import ConfigError


class MovingJob(Protocol):
    @property
    def deployments(self) -> tuple[str, ...]: ...

    async def move_to(self, group: str) -> bool: ...


class WorkerGroups:
    """`order`: a name of `scheduling.orders.ORDERS`, with underscores. `router` says where each deployment is now.

    Its first routes are kept. `executor` carries the groups, and is closed with them; None: child processes.
    """

    def __init__(
        self, settings: Sequence[ConfigureGroup], router: Router, order: str = "hrrs", max_restarts: int = 3,
        placement: GroupPlacement | None = None, clock: Callable[[], float] = time.monotonic,
        executor: Executor | None = None,
    ) -> None:  # fmt: skip
        self._executor = executor or ProcessExecutor()
        self.router, self.clock, self.started_s = router, clock, clock()
        self._routed = frozenset(router.routes)
        self.placement = placement or GroupPlacement([one.name for one in settings])
        self.times = OwnTimes()
        self.demands: dict[str, JobDemand] = {}
        self.jobs: dict[str, MovingJob] = {}
        self.num_moves: Counter[str] = Counter()
        """Jobs that came to each group from another."""
        self.on_leave: Callable[[], None] = lambda: None
        """Told before a job leaves."""
        self._groups = {
            one.name: WorkerGroup(
                one,
                ORDERS[order.replace("_", "-")](),
                max_restarts,
                clock,
                GroupDemand(self.times, self._recorded),
                self._executor,
            )
            for one in settings
        }

    @property
    def groups(self) -> dict[str, WorkerGroup]:
        return dict(self._groups)

    def of(self, deployment: str) -> WorkerGroup:
        """Raises ConfigError if there is no such group."""
        return self.named(self.router.group_of(deployment))

    def named(self, group: str) -> WorkerGroup:
        """Raises ConfigError if there is none of this name."""
        if group not in self._groups:
            raise ConfigError(f"there is no worker group {group!r}.", f"There are {sorted(self._groups)}.")
        return self._groups[group]

    # ---- jobs

    def join(self, job: str, moving: MovingJob, num_bytes: int, slo: float = DEFAULT_SLO) -> None:
        """It is to start, and its deployments take so much of a device."""
        self.demands[job], self.jobs[job] = JobDemand(job, self.times, self.clock()), moving
        if self._routed.isdisjoint(moving.deployments):
            self._route(job, self.placement.arrive(job, num_bytes, slo))

    def moved(self, job: str, group: str) -> None:
        self._route(job, group)
        self.num_moves[group] += 1

    def _route(self, job: str, group: str) -> None:
        for deployment in self.jobs[job].deployments:
            self.router = self.router.with_route(deployment, group)

    def leave(self, job: str) -> None:
        """Nothing of it is there any more."""
        self.demands.pop(job, None)
        if self.jobs.pop(job, None) is not None:
            self.placement.leave(job, self.clock())

    def group_of(self, job: str) -> str:
        """Where it is."""
        return self.router.group_of(self.jobs[job].deployments[0])

    # ---- traces and decisions

    def look(self) -> None:
        """What traces have come to tell is the placement's to judge, where there is a choice: these are questions to it."""
        if len(self._groups) == 1:
            return
        now_s = self.clock()
        for job, demand in self.demands.items():
            found = demand.look(now_s)
            if found.profile is not None and job in self.placement.jobs:
                num_bytes, switch_s = self._costs(job)
                self.placement.profiled(job, found.profile, found.anchor_s, num_bytes, switch_s, now_s)

    def misplaced(self) -> dict[str, str]:
        """Where jobs are to be that are elsewhere."""
        return {job: here.group for job, here in self.placement.jobs.items() if here.group != self.group_of(job)}

    def _costs(self, job: str) -> tuple[int, float]:
        """Bytes on the device of all its deployments, and the mean time of a switch where it is; 0 if there was none."""
        dispatcher = self.named(self.group_of(job)).dispatcher
        sizes, counters = dispatcher.residents.sizes, dispatcher.counters
        num_bytes = sum(sizes.get(deployment, 0) for deployment in self.jobs[job].deployments)
        return num_bytes, counters.setup_s / max(counters.num_switches, 1)

    def _recorded(self, job: str, record: FunctionRecord) -> None:
        if job in self.demands:
            self.demands[job].record(record)

    async def close(self) -> None:
        """After all jobs have left."""
        for group in self._groups.values():
            await group.close()
        await self._executor.close()
