"""The workers of a run or a service: who rolls out, who trains, and what happens when one is lost.

- Layout "split" has one or more rollout workers and one or more that train; "shared" has one with both roles.
- A lost worker is replaced up to `max_restarts` times within `RESTART_WINDOW_S`; then, and when a replacement refuses to start,
  `on_failed` is called. A replacement that is lost while it starts is one more lost worker.
- An error of the caller's own handler is no loss of the worker: `on_failed` is called with it.
- What a replacement has to be told again is the caller's business: `on_ready` names the worker and its roles.
"""

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from plait.cluster.all_of import all_of
from plait.cluster.client import WorkerClient
from plait.cluster.executors.carrier import Executor
from plait.cluster.executors.process import ProcessExecutor
from plait.cluster.messages import (
    ROLLOUT,
    TRAIN,
    CancelRequests,
    Configure,
    EndStretches,
    FromWorker,
    Ready,
    ReleaseCaches,
    SetThreads,
    SubmitChunks,
    ToWorker,
)
from plait.cluster.restarts import Restarts
from plait.types.chunks import Chunk
from plait.types.errors import WorkerFailure

if TYPE_CHECKING:
    from plait.cluster.groups.group_move import MoveListener


class Workers:
    on_move: "MoveListener | None" = None
    moving_engines: tuple[str, ...] = ()
    """These workers stay where they are."""

    def __init__(
        self,
        configurations: Sequence[Configure],
        max_restarts: int,
        on_message: Callable[[str, FromWorker], None],
        on_lost: Callable[[str, Sequence[str], WorkerFailure], None],
        on_ready: Callable[[str, Sequence[str]], None],
        on_failed: Callable[[Exception], None],
        *,
        executor: Executor | None = None,
    ) -> None:
        """`executor` carries the workers, and is closed with them; None: child processes."""
        self.configurations = configurations
        self._on_message, self._on_lost, self._on_ready, self._on_failed = on_message, on_lost, on_ready, on_failed
        self._restarts = Restarts(max_restarts, time.monotonic)
        self._executor = executor or ProcessExecutor()
        self._clients: dict[str, WorkerClient] = {}
        self._restarting: set[asyncio.Task[None]] = set()
        self._is_closing = False

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(c.name for c in self.configurations)

    @property
    def engine_names(self) -> tuple[str, ...]:
        """Of the workers that roll out, in the order of their numbers."""
        return tuple(c.name for c in self.configurations if ROLLOUT in c.roles)

    @property
    def pids(self) -> dict[str, int]:
        return {name: client.pid for name, client in self._clients.items()}

    async def start(self) -> Ready:
        """Start all at once; what the first reports stands for all."""
        return (await all_of([self._start(configuration) for configuration in self.configurations]))[0]

    async def _start(self, configuration: Configure) -> Ready:
        name = configuration.name
        client = WorkerClient(configuration, lambda m: self._take(name, m), lambda f: self._lost(configuration, f), self._executor)
        ready = await client.start()
        self._clients[name] = client
        return ready

    def _take(self, name: str, message: FromWorker) -> None:
        self._tell(self._on_message, name, message)

    def _tell(self, handler: Callable[..., None], *arguments: object) -> None:
        try:
            handler(*arguments)
        except Exception as error:  # Raised further it would end the worker's reader, and the caller would wait for ever.
            self._on_failed(error)

    def _lost(self, configuration: Configure, failure: WorkerFailure) -> None:
        del self._clients[configuration.name]
        self._tell(self._on_lost, configuration.name, configuration.roles, failure)
        self._replace(configuration, failure)

    def _replace(self, configuration: Configure, failure: WorkerFailure) -> None:
        if self._is_closing:
            return
        if not self._restarts.take():
            self._on_failed(failure)
            return
        task = asyncio.create_task(self._restart(configuration))
        self._restarting.add(task)
        task.add_done_callback(self._restarting.discard)

    async def _restart(self, configuration: Configure) -> None:
        try:
            await self._start(configuration)
        except WorkerFailure as failure:
            self._replace(configuration, failure)
            return
        except Exception as error:  # Whatever it is: nobody else would hear of it, and the caller would wait for ever.
            self._on_failed(error)
            return
        self._tell(self._on_ready, configuration.name, configuration.roles)

    def send_to(self, worker: str, message: ToWorker) -> None:
        """While the worker is lost nothing is sent, and `on_ready` says when to send again."""
        if worker in self._clients:
            self._clients[worker].send(message)

    def lend_threads(self, trainer_is_idle: bool) -> None:
        """Threads of trainers that are all idle decode meanwhile. Only where each has a process of its own."""
        if len(self.configurations) == 1 or not all(c.lend_threads for c in self.configurations):
            return
        spare = min(self._threads(TRAIN), max(0, (os.cpu_count() or 1) - self._threads(ROLLOUT))) if trainer_is_idle else 0
        engines = [c for c in self.configurations if ROLLOUT in c.roles]
        for number, engine in enumerate(engines):
            lent = spare // len(engines) + (number < spare % len(engines))
            self.send_to(engine.name, SetThreads(engine.threads + lent))

    def _threads(self, role: str) -> int:
        return sum(c.threads * c.train_ranks for c in self.configurations if role in c.roles)

    async def close(self) -> None:
        self._is_closing = True
        for task in self._restarting:
            task.cancel()
        await asyncio.gather(*self._restarting, return_exceptions=True)
        try:
            await all_of([client.close() for client in self._clients.values()])
        finally:
            await self._executor.close()


MakeWorkers = Callable[
    [
        Sequence[Configure],
        int,
        Callable[[str, FromWorker], None],
        Callable[[str, Sequence[str], WorkerFailure], None],
        Callable[[str, Sequence[str]], None],
        Callable[[Exception], None],
    ],
    "WorkerSet",
]
"""What makes the workers of a deployment: the class `Workers`, or whatever else gives a WorkerSet."""


class WorkerSet(Protocol):
    """The workers of one deployment, as `Workers` has them."""

    @property
    def names(self) -> tuple[str, ...]: ...
    @property
    def engine_names(self) -> tuple[str, ...]: ...
    @property
    def pids(self) -> dict[str, int]: ...
    @property
    def moving_engines(self) -> tuple[str, ...]:
        """Those that are elsewhere after a move of these workers."""
        ...

    on_move: "MoveListener | None"
    """Set by who is to hear of moves."""

    async def start(self) -> Ready: ...
    def send_to(self, worker: str, message: ToWorker) -> None: ...
    def lend_threads(self, trainer_is_idle: bool) -> None: ...
    async def close(self) -> None: ...


class WorkerEngine:
    """The `EngineLink` of one worker."""

    def __init__(self, workers: WorkerSet, name: str) -> None:
        self._workers, self._name = workers, name

    def submit(self, chunks: Sequence[Chunk]) -> None:
        self._workers.send_to(self._name, SubmitChunks(tuple(chunks)))

    def cancel(self, request_ids: Sequence[str]) -> None:
        self._workers.send_to(self._name, CancelRequests(tuple(request_ids)))

    def release(self, handles: Sequence[str], went_on: bool = False) -> None:
        self._workers.send_to(self._name, ReleaseCaches(tuple(handles), went_on))

    def end_stretches(self) -> None:
        self._workers.send_to(self._name, EndStretches())
