"""The worker processes of a run or a service: who rolls out, who trains, and what happens when one is lost.

- Layout "split" has a rollout and a training process; "shared" has one with both roles.
- A lost worker is replaced up to `max_restarts` times within `RESTART_WINDOW_S`; then, and when a replacement does not start,
  `on_failed` is called.
- An error of the caller's own handler is no loss of the worker: `on_failed` is called with it.
- What a replacement has to be told again is the caller's business: `on_ready` names the roles that are back.
"""

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from plait.cluster.client import WorkerClient
from plait.cluster.messages import (
    ROLLOUT,
    TRAIN,
    CancelRequests,
    Configure,
    FromWorker,
    Ready,
    ReleaseCaches,
    SetThreads,
    SubmitChunks,
    ToWorker,
)
from plait.cluster.model_messages import ScorePrompt
from plait.config.run import EngineSettings, ModelSettings, TrainingSettings, WorkerSettings
from plait.types.chunks import Chunk
from plait.types.errors import PlaitError, WorkerFailure

RESTART_WINDOW_S = 3600.0
TRAIN_WORKER = "train"
"""Name of the process that only trains, in layout "split"."""


class Workers:
    """Also the `EngineLink` of the rollout service."""

    def __init__(
        self,
        configurations: Sequence[Configure],
        max_restarts: int,
        on_message: Callable[[str, FromWorker], None],
        on_lost: Callable[[str, WorkerFailure], None],
        on_ready: Callable[[Sequence[str]], None],
        on_failed: Callable[[Exception], None],
    ) -> None:
        self.configurations = configurations
        self._on_message, self._on_lost, self._on_ready, self._on_failed = on_message, on_lost, on_ready, on_failed
        self._max_restarts = max_restarts
        self._restart_times_s: list[float] = []
        self._clients: dict[str, WorkerClient] = {}
        self._restarting: set[asyncio.Task[None]] = set()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(c.name for c in self.configurations)

    @property
    def pids(self) -> dict[str, int]:
        return {name: client.pid for name, client in self._clients.items()}

    async def start(self) -> Ready:
        """Start all at once; what the first reports stands for all."""
        starts = [self._start(configuration) for configuration in self.configurations]
        results = await asyncio.gather(*starts, return_exceptions=True)  # All come to an end, so that all can be closed.
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return next(result for result in results if isinstance(result, Ready))

    async def _start(self, configuration: Configure) -> Ready:
        name = configuration.name
        client = WorkerClient(configuration, lambda m: self._take(name, m), lambda f: self._lost(configuration, f))
        ready = await client.start()
        self._clients[name] = client
        return ready

    def _take(self, name: str, message: FromWorker) -> None:
        try:
            self._on_message(name, message)
        except Exception as error:  # Raised further it would end the worker's reader, and the caller would wait for ever.
            self._on_failed(error)

    def _lost(self, configuration: Configure, failure: WorkerFailure) -> None:
        del self._clients[configuration.name]
        self._on_lost(configuration.name, failure)
        now_s = time.monotonic()
        self._restart_times_s = [time_s for time_s in self._restart_times_s if now_s - time_s < RESTART_WINDOW_S]
        if len(self._restart_times_s) == self._max_restarts:
            self._on_failed(failure)
            return
        self._restart_times_s.append(now_s)
        task = asyncio.create_task(self._restart(configuration))
        self._restarting.add(task)
        task.add_done_callback(self._restarting.discard)

    async def _restart(self, configuration: Configure) -> None:
        try:
            await self._start(configuration)
        except PlaitError as failure:
            self._on_failed(failure)
            return
        self._on_ready(configuration.roles)

    def _send(self, role: str, message: ToWorker) -> None:
        """To the worker of that role; while it is lost nothing is sent, and `on_ready` says when to send again."""
        for client in self._clients.values():
            if role in client.settings.roles:
                client.send(message)

    def submit(self, chunks: Sequence[Chunk]) -> None:
        self._send(ROLLOUT, SubmitChunks(tuple(chunks)))

    def cancel(self, request_ids: Sequence[str]) -> None:
        self._send(ROLLOUT, CancelRequests(tuple(request_ids)))

    def release(self, handles: Sequence[str]) -> None:
        self._send(ROLLOUT, ReleaseCaches(tuple(handles)))

    def train(self, message: ToWorker) -> None:
        self._send(TRAIN, message)

    def score(self, prompt: ScorePrompt) -> None:
        self._send(ROLLOUT, prompt)

    def lend_threads(self, trainer_is_idle: bool) -> None:
        """An idle trainer's threads decode meanwhile. Only where each has a process of its own."""
        if not all(c.lend_threads for c in self.configurations):
            return
        own, others = self._threads(ROLLOUT), self._threads(TRAIN)
        if len(self.configurations) > 1:
            self._send(ROLLOUT, SetThreads(min(own + others, max(own, os.cpu_count() or 1)) if trainer_is_idle else own))

    def _threads(self, role: str) -> int:
        return sum(c.threads for c in self.configurations if role in c.roles)

    async def close(self) -> None:
        for task in self._restarting:
            task.cancel()
        await asyncio.gather(*(client.close() for client in self._clients.values()))


class ComputeSettings(Protocol):
    """The sections of a settings file that say how workers compute."""

    @property
    def model(self) -> ModelSettings: ...
    @property
    def workers(self) -> WorkerSettings: ...
    @property
    def engine(self) -> EngineSettings: ...
    @property
    def training(self) -> TrainingSettings: ...


def configurations(settings: ComputeSettings, model_path: str, num_tasks: int) -> list[Configure]:
    """What each worker process is told first. `num_tasks`: whose adapters are expected in memory at one time."""
    workers = settings.workers
    if workers.layout == "shared":
        threads = max(workers.rollout_threads, workers.train_threads)
        return [_configure(settings, model_path, num_tasks, "worker", (ROLLOUT, TRAIN), threads)]
    return [
        _configure(settings, model_path, num_tasks, "rollout", (ROLLOUT,), workers.rollout_threads),
        _configure(settings, model_path, num_tasks, TRAIN_WORKER, (TRAIN,), workers.train_threads),
    ]


def _configure(
    settings: ComputeSettings, model_path: str, num_tasks: int, name: str, roles: tuple[str, ...], threads: int
) -> Configure:
    model, engine = settings.model, settings.engine
    return Configure(
        name=name, roles=roles, model_path=model_path, dtype=model.dtype, device=model.device, threads=threads,
        max_context_tokens=model.max_context_tokens, max_rows=engine.max_rows, slot_tokens=engine.slot_tokens,
        pool_tokens=engine.pool_tokens, batch_invariant=engine.batch_invariant,
        micro_batch_tokens=settings.training.micro_batch_tokens, checkpoint_layers=settings.training.checkpoint_layers,
        num_tasks=num_tasks, lend_threads=settings.workers.lend_threads,
    )  # fmt: skip
