"""The worker processes of one base model of a service, and who is told of what they report. Torch-free.

- Rollouts of all tenants go through one RolloutService; when a rollout worker is lost, they go on in others, or in its replacement.
- Calls of a model go to the trainer that has it in the order in which they are sent. Listeners hear of their results, and when a
  trainer is lost (what it had is gone) and back.
- Prompts to score are answered once; when a rollout worker is lost, those that it had are sent to another.
"""

import logging
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Protocol

from plait.cluster.messages import Busy, FromWorker, JobFailed, Ready, Starting, TaskOpened, UpdateDone
from plait.cluster.model_messages import CallDone, CallFailed, ModelOpened, PromptScored, ScorePrompt
from plait.cluster.rollout_deployment import RolloutDeployment
from plait.cluster.trainer_messages import ToTrainer
from plait.cluster.workers import MakeWorkers
from plait.config.server import ServerSettings
from plait.observe.events import EngineSample
from plait.rollout.length_estimates import LengthHistory
from plait.rollout.scheduler import Scheduler
from plait.rollout.service import RolloutService
from plait.tasks.compute import ComputeListener
from plait.types.errors import WorkerFailure

ModelReply = ModelOpened | CallDone | CallFailed

log = logging.getLogger("plait.server")


class ModelListener(Protocol):
    def on_reply(self, reply: ModelReply) -> None: ...

    def on_trainer_lost(self, owners: Collection[str], num_left: int) -> None:
        """What a trainer had of these models and tasks is gone; so many trainers are left."""
        ...

    def on_trainer_back(self) -> None: ...


class Backend:
    """`on_failed` is told of what ends the service: a worker that cannot be replaced, or an error of a handler."""

    def __init__(
        self,
        settings: ServerSettings,
        model_path: str,
        scheduler: Scheduler | None,
        on_failed: Callable[[Exception], None],
        kv_folder: Path,
        make_workers: MakeWorkers | None = None,
        history: LengthHistory | None = None,
    ) -> None:
        self._told_failed = on_failed
        self.deployment = RolloutDeployment(
            settings, model_path, settings.lora.max_resident, self, scheduler, kv_folder, make_workers, history
        )  # fmt: skip
        self.workers = self.deployment.workers
        self.listeners: list[ModelListener] = []
        self.busy_listeners: list[Callable[[str, Busy], None]] = []
        self.runs: ComputeListener | None = None
        """Hears of managed tasks."""

    @property
    def rollout(self) -> RolloutService:
        return self.deployment.rollout

    async def start(self) -> Ready:
        return await self.deployment.start()

    async def close(self) -> None:
        await self.deployment.close()

    # ---- what goes out

    def send(self, message: ToTrainer) -> None:
        self.deployment.train(message)

    async def score(self, prompt: ScorePrompt) -> PromptScored:
        """Raises what ended the service, if it ends meanwhile."""
        return await self.deployment.scoring.score(prompt)

    # ---- DeploymentListener

    def on_message(self, worker: str, message: FromWorker) -> None:
        match message:
            case Starting(what) if what:
                log.info("%s: %s", worker, what)
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

    def on_adapters_lost(self, owners: Sequence[str], num_trainers: int) -> None:
        for listener in self.listeners:
            listener.on_trainer_lost(owners, num_trainers)

    def on_reopen(self, owners: Sequence[str]) -> None:
        """Models are opened again by the calls that need them."""
        if self.runs is not None:
            self.runs.on_reopen(owners)

    def on_trainer_ready(self) -> None:
        for listener in self.listeners:
            listener.on_trainer_back()

    def on_failed(self, error: Exception) -> None:
        if self.runs is not None:
            self.runs.on_failed(error)
        self._told_failed(error)
