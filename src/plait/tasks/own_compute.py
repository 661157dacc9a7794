"""Worker processes for one run alone."""

from collections.abc import Sequence
from pathlib import Path

from plait.cluster.messages import Busy, FromWorker, JobFailed, Ready, TaskOpened, UpdateDone
from plait.cluster.rollout_deployment import RolloutDeployment
from plait.config.run import RunSettings
from plait.observe.events import EngineSample
from plait.rollout.scheduler import Scheduler
from plait.rollout.service import RolloutService
from plait.tasks.compute import ComputeListener, ToTrainer
from plait.types.errors import WorkerFailure


class OwnCompute:
    """`scheduler` decides whose request goes next, and where; None: as the settings say. The cache's disk tier lies in `kv_folder`."""

    def __init__(
        self, settings: RunSettings, model_path: str, scheduler: Scheduler | None = None, kv_folder: Path | None = None
    ) -> None:
        self._listener: ComputeListener | None = None
        self.deployment = RolloutDeployment(settings, model_path, len(settings.tasks), self, scheduler, kv_folder)
        self.workers = self.deployment.workers

    @property
    def rollout(self) -> RolloutService:
        return self.deployment.rollout

    @property
    def worker_names(self) -> tuple[str, ...]:
        return self.workers.names

    async def start(self, listener: ComputeListener) -> Ready:
        self._listener = listener
        return await self.deployment.start()

    async def close(self) -> None:
        await self.deployment.close()

    def train(self, message: ToTrainer) -> None:
        self.workers.train(message)

    def note_training(self, is_idle: bool) -> None:
        self.workers.lend_threads(trainer_is_idle=is_idle)

    # ---- DeploymentListener

    @property
    def _told(self) -> ComputeListener:
        assert self._listener is not None, "nothing comes before `start`"
        return self._listener

    def on_message(self, worker: str, message: FromWorker) -> None:
        if isinstance(message, Busy | TaskOpened | UpdateDone | JobFailed):
            self._told.on_message(worker, message)

    def on_engine(self, sample: EngineSample) -> None:
        self._told.on_engine(sample)

    def on_worker_lost(self, worker: str, roles: Sequence[str], failure: WorkerFailure) -> None:
        self._told.on_worker_lost(worker, failure)

    def on_worker_ready(self, roles: Sequence[str]) -> None:
        self._told.on_worker_ready(roles)

    def on_failed(self, error: Exception) -> None:
        self._told.on_failed(error)
