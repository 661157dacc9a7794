"""Carries out where jobs are to be, and tells how the worker groups stand. Torch-free.

Every `interval_s` the traces are looked at, and whoever is not where the placement wants it is moved, one job after another.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import TypeVar

from plait.cluster.groups.group_state import group_states
from plait.cluster.groups.worker_groups import WorkerGroups
from plait.observe.events import GroupSample, JobMoved, Note
from plait.types.errors import PlaitError

INTERVAL_S = 10.0
T = TypeVar("T")

log = logging.getLogger("plait.cluster")


class PlacementLoop:
    """`emit` hears of moves, of those that failed, and how each group stands: now and then, and before a job leaves."""

    def __init__(
        self, groups: WorkerGroups, emit: Callable[[GroupSample | JobMoved | Note], None], interval_s: float = INTERVAL_S
    ) -> None:
        self._groups, self._emit, self._interval_s = groups, emit, interval_s
        self._task: asyncio.Task[None] | None = None
        groups.on_leave = self.tell

    async def __aenter__(self) -> "PlacementLoop":
        self._task = asyncio.create_task(self._run(), name="placement of jobs")
        return self

    async def __aexit__(self, *_: object) -> None:
        self._groups.on_leave = lambda: None
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._interval_s)
            try:
                self._groups.look()
                await self._decide()
                await self._move_all()
                self.tell()
            except Exception:  # Everything runs where it is; the next look may be better.
                log.exception("placing jobs failed; it is tried again in %g s", self._interval_s)

    async def _decide(self) -> None:
        """In a thread: to run jobs together on trial takes long, and the controller has others to serve."""
        placement = self._groups.placement
        while (question := placement.next_question()) is not None:
            placement.take(await _in_thread(question))

    async def _move_all(self) -> None:
        for job in self._groups.misplaced():
            group = self._groups.misplaced().get(job)
            if group is None:
                continue  # It has left meanwhile.
            source = self._groups.group_of(job)
            try:
                if await self._groups.jobs[job].move_to(group):
                    self._emit(JobMoved(time_s=time.time(), job=job, source=source, target=group))
            except PlaitError as error:
                self._groups.placement.stay(job, source, self._groups.clock())
                message = f"{job} stays at {source}: {group} cannot take it: {error}"
                self._emit(Note(time_s=time.time(), level="warning", message=message))

    def tell(self) -> None:
        for state in group_states(self._groups):
            self._emit(
                GroupSample(
                    time_s=time.time(), group=state.name, deployments=state.deployments, up_s=state.up_s, busy_s=state.busy_s,
                    num_calls=state.num_calls, num_switches=state.num_switches, num_moves=state.num_moves,
                )
            )  # fmt: skip


async def _in_thread(work: Callable[[], T]) -> T:
    """A thread cannot be stopped: who is cancelled waits for it, so that nothing goes on behind its back."""
    thread = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(thread)
    except asyncio.CancelledError:
        await asyncio.gather(thread, return_exceptions=True)
        raise
