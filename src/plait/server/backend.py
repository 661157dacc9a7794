"""The worker processes of a service, and who is told of what they report. Torch-free.

- Rollouts of all tenants go through one RolloutService; when the rollout worker is lost, they go on in its replacement.
- Calls of models go to the training worker in the order in which they are sent. Listeners hear of their results, and when the
  worker is lost (what it had is gone) and back.
- Prompts to score are answered once; when the rollout worker is lost they are sent again to its replacement.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from plait.cluster.messages import ROLLOUT, TRAIN, Busy, ChunksDone, FromWorker, JobFailed, Ready, TaskOpened, UpdateDone
from plait.cluster.model_messages import CallDone, CallFailed, ModelMessage, ModelOpened, PromptScored, ScorePrompt
from plait.cluster.workers import TRAIN_WORKER, Workers, configurations
from plait.config.server import ServerSettings
from plait.rollout.buffer import RequestBuffer
from plait.rollout.concurrency import ConcurrencyController
from plait.rollout.service import RolloutService
from plait.tasks.compute import ComputeListener
from plait.types.errors import WorkerFailure

ModelReply = ModelOpened | CallDone | CallFailed


class ModelListener(Protocol):
    def on_reply(self, reply: ModelReply) -> None: ...

    def on_trainer_lost(self) -> None: ...

    def on_trainer_back(self) -> None: ...


class Backend:
    """`on_failed` is told of what ends the service: a worker that cannot be replaced, or an error of a handler."""

    def __init__(
        self, settings: ServerSettings, model_path: str, buffer: RequestBuffer | None, on_failed: Callable[[Exception], None]
    ) -> None:
        engine = settings.engine
        self._settings, self._on_failed = settings, on_failed
        self.workers = Workers(
            configurations(settings, model_path, settings.lora.max_resident), settings.workers.max_restarts,
            self._on_message, self._on_lost, self._on_ready, self._fail,
        )  # fmt: skip
        self.concurrency = ConcurrencyController(engine.max_rows, start_rows=engine.max_rows // 2)
        self.rollout = RolloutService(engine.chunk_tokens, self._row_limit, buffer or RequestBuffer.for_rows(engine.max_rows))
        self.listeners: list[ModelListener] = []
        self.busy_listeners: list[Callable[[str, Busy], None]] = []
        self.runs: ComputeListener | None = None
        """Hears of managed tasks."""
        self._scores: dict[str, tuple[ScorePrompt, asyncio.Future[PromptScored]]] = {}
        self._training: set[str] = set()
        """Who has work with the trainer."""

    def _row_limit(self) -> int:
        return self.concurrency.limit if self._settings.engine.adaptive_concurrency else self._settings.engine.max_rows

    async def start(self) -> Ready:
        ready = await self.workers.start()
        self.rollout.attach(self.workers)
        self.workers.lend_threads(trainer_is_idle=True)
        return ready

    async def close(self) -> None:
        await self.workers.close()

    # ---- what goes out

    def send(self, message: ModelMessage) -> None:
        self.workers.train(message)

    def note_training(self, is_idle: bool, who: str = "models") -> None:
        """An idle trainer lends its threads to rollout. `who` speaks for its own work."""
        was_idle = not self._training
        (self._training.discard if is_idle else self._training.add)(who)
        if was_idle != (not self._training):
            self.workers.lend_threads(trainer_is_idle=not self._training)

    async def score(self, prompt: ScorePrompt) -> PromptScored:
        """Raises what ended the service, if it ends meanwhile."""
        future: asyncio.Future[PromptScored] = asyncio.get_running_loop().create_future()
        self._scores[prompt.request_id] = (prompt, future)
        self.workers.score(prompt)
        try:
            return await future
        finally:
            del self._scores[prompt.request_id]

    # ---- what comes back

    def _on_message(self, worker: str, message: FromWorker) -> None:
        match message:
            case ChunksDone(results):
                self.rollout.on_results(results)
            case Busy():
                self._on_busy(worker, message)
            case ModelOpened() | CallDone() | CallFailed():
                for listener in self.listeners:
                    listener.on_reply(message)
            case TaskOpened() | UpdateDone() | JobFailed() if self.runs is not None:
                self.runs.on_message(worker, message)
            case PromptScored():
                self._on_scored(message)

    def _on_scored(self, message: PromptScored) -> None:
        waiting = self._scores.get(message.request_id)
        if waiting is not None and not waiting[1].done():
            waiting[1].set_result(message)

    def _on_busy(self, worker: str, busy: Busy) -> None:
        if busy.num_rows:
            self.concurrency.observe(busy.num_tokens, busy.end_s - busy.start_s, busy.num_rows)
            self.rollout.pump()
        for listener in self.busy_listeners:
            listener(worker, busy)

    def _on_lost(self, worker: str, failure: WorkerFailure) -> None:
        if self.runs is not None:
            self.runs.on_worker_lost(worker, failure)
        if worker != TRAIN_WORKER:
            self.rollout.detach()
        if any(c.name == worker and TRAIN in c.roles for c in self.workers.configurations):
            for listener in self.listeners:
                listener.on_trainer_lost()

    def _on_ready(self, roles: Sequence[str]) -> None:
        if ROLLOUT in roles:
            self.rollout.attach(self.workers)
            for prompt, _ in list(self._scores.values()):
                self.workers.score(prompt)
        if TRAIN in roles:
            for listener in self.listeners:
                listener.on_trainer_back()
        if self.runs is not None:
            self.runs.on_worker_ready(roles)

    def _fail(self, error: Exception) -> None:
        if self.runs is not None:
            self.runs.on_failed(error)
        self.rollout.fail_all(error)
        for _, future in self._scores.values():
            if not future.done():
                future.set_exception(error)
        self._on_failed(error)
