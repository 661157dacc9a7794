"""The worker processes of a service, and who is told of what they report. Torch-free.

- Rollouts of all tenants go through one RolloutService; when a rollout worker is lost, they go on in others, or in its replacement.
- Calls of models go to the training worker in the order in which they are sent. Listeners hear of their results, and when the
  worker is lost (what it had is gone) and back.
- Prompts to score are answered once; when a rollout worker is lost, those that it had are sent to another.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from plait.cluster.messages import TRAIN, Busy, FromWorker, JobFailed, Ready, TaskOpened, UpdateDone
from plait.cluster.model_messages import CallDone, CallFailed, ModelMessage, ModelOpened, PromptScored, ScorePrompt
from plait.cluster.rollout_deployment import RolloutDeployment
from plait.config.server import ServerSettings
from plait.observe.events import EngineSample
from plait.rollout.scheduler import Scheduler
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
        self, settings: ServerSettings, model_path: str, scheduler: Scheduler | None, on_failed: Callable[[Exception], None]
    ) -> None:
        self._told_failed = on_failed
        self.deployment = RolloutDeployment(
            settings, model_path, settings.lora.max_resident, self, scheduler, settings.data_folder / "kv"
        )
        self.workers = self.deployment.workers
        self.listeners: list[ModelListener] = []
        self.busy_listeners: list[Callable[[str, Busy], None]] = []
        self.runs: ComputeListener | None = None
        """Hears of managed tasks."""
        self._training: set[str] = set()
        """Who has work with the trainer."""

    @property
    def rollout(self) -> RolloutService:
        return self.deployment.rollout

    async def start(self) -> Ready:
        return await self.deployment.start()

    async def close(self) -> None:
        await self.deployment.close()

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
        return await self.deployment.scoring.score(prompt)

    # ---- DeploymentListener

    def on_message(self, worker: str, message: FromWorker) -> None:
        match message:
            case Busy():
                for heard in self.busy_listeners:
                    heard(worker, message)
            case ModelOpened() | CallDone() | CallFailed():
                for listener in self.listeners:
                    listener.on_reply(message)
            case TaskOpened() | UpdateDone() | JobFailed() if self.runs is not None:
                self.runs.on_message(worker, message)

    def on_engine(self, sample: EngineSample) -> None:
        """The gauges ask for the latest themselves."""

    def on_worker_lost(self, worker: str, roles: Sequence[str], failure: WorkerFailure) -> None:
        if self.runs is not None:
            self.runs.on_worker_lost(worker, failure)
        if TRAIN in roles:
            for listener in self.listeners:
                listener.on_trainer_lost()

    def on_worker_ready(self, roles: Sequence[str]) -> None:
        if TRAIN in roles:
            for listener in self.listeners:
                listener.on_trainer_back()
        if self.runs is not None:
            self.runs.on_worker_ready(roles)

    def on_failed(self, error: Exception) -> None:
        if self.runs is not None:
            self.runs.on_failed(error)
        self._told_failed(error)
