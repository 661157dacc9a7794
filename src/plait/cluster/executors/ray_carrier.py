"""The controller's side of a worker in a Ray actor.

- Frames to it: one call delivers all that wait, and the next goes out when that one has come back. Calls are never tried again, and
  carry the number of their first frame; so frames arrive in order, and once.
- Frames from it: one call waits in the actor and comes back with all that have been sent meanwhile. Nothing polls.
- The worker is lost as soon as Ray reports any call to have failed, be it for the actor, its node or the way there. The actor is
  killed then, for it may still be alive, and must not go on beside its replacement.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from plait.cluster.executors.ray_actor import Started
from plait.types.errors import WorkerFailure

END_TIMEOUT_S = 8.0
"""How long a worker may take to end by itself."""
INLINE_BYTES = 64 * 1024
"""Longer arguments go through Ray's object store, which may have to make room first."""


class RayCarrier:
    """`actor` is the handle of a WorkerActor that has started; `kill` ends it, and does not wait for that."""

    def __init__(self, name: str, actor: Any, started: Started, kill: Callable[[], object]) -> None:
        self.pid, self.node = started.pid, started.node
        self._described = f"worker {name!r} (process {started.pid} on node {started.host})"
        self._actor, self._kill = actor, kill
        self._lost: asyncio.Future[WorkerFailure] = asyncio.get_running_loop().create_future()
        self._arrived: deque[bytes] = deque()
        self._collecting: asyncio.Task[None] | None = None
        self._outbox: list[bytes] = []
        self._num_sent = 0
        self._delivering: asyncio.Task[None] | None = None
        self._ending: asyncio.Task[None] | None = None

    @property
    def is_over(self) -> bool:
        """It is lost, and no call to it is under way: `close` has nothing to do."""
        return self._lost.done() and all(task.done() for task in self._tasks)

    @property
    def _tasks(self) -> list["asyncio.Task[None]"]:
        """Calls into Ray, under way or ended."""
        return [task for task in (self._delivering, self._collecting, self._ending) if task is not None]

    async def send(self, message: bytes) -> None:
        if self._lost.done():
            raise self._lost.result()
        self._outbox.append(message)
        if self._delivering is None or self._delivering.done():
            self._delivering = asyncio.create_task(self._deliver())

    async def receive(self) -> bytes:
        while not self._arrived:
            if self._lost.done():
                raise self._lost.result()
            if self._collecting is None or self._collecting.done():
                self._collecting = asyncio.create_task(self._collect())
            either: list[asyncio.Future[Any]] = [self._collecting, self._lost]
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        return self._arrived.popleft()

    def kill(self) -> None:
        self._lose("was killed.")

    async def close(self) -> None:
        """Also of a worker that is lost: no call to it is under way afterwards. May be called again."""
        try:
            if not self._lost.done():
                self._ending = self._ending or asyncio.create_task(self._end())
                await asyncio.wait([self._ending], timeout=END_TIMEOUT_S)
        finally:
            self._lose("was closed.")
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=END_TIMEOUT_S)

    # ---- calls under way

    async def _end(self) -> None:
        try:
            await self._actor.end.remote()
        except Exception as error:
            self._lose(describe(error))

    async def _deliver(self) -> None:
        while self._outbox and not self._lost.done():
            frames, self._outbox = self._outbox, []
            number, self._num_sent = self._num_sent, self._num_sent + len(frames)
            try:
                await (await self._submit(number, frames))
            except Exception as error:
                self._lose(describe(error))

    async def _submit(self, number: int, frames: list[bytes]) -> Any:
        """The reference of the call's end."""
        if sum(map(len, frames)) < INLINE_BYTES:
            return self._actor.deliver.remote(number, frames)
        return await asyncio.to_thread(self._actor.deliver.remote, number, frames)

    async def _collect(self) -> None:
        try:
            frames, end = await self._actor.collect.remote()
        except Exception as error:
            self._lose(describe(error))
            return
        self._arrived += frames
        if end:
            self._lose(f"ended. {end}")

    def _lose(self, how: str) -> None:
        if not self._lost.done():
            self._lost.set_result(WorkerFailure(f"{self._described} {how}"))
            self._kill()


def describe(error: BaseException) -> str:
    """Ray's errors are several lines; those that are indented only give ids."""
    lines = [line for line in str(error).splitlines() if line.strip() and not line.startswith("\t")]
    return f"is lost: {type(error).__name__}: {' '.join(lines)}"
