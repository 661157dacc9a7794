"""Worker processes for one run alone, or for its part on one base model."""

from collections.abc import Sequence
from pathlib import Path

from plait.cluster.messages import Busy, FromWorker, JobFailed, Ready, Starting, TaskOpened, UpdateDone
from plait.cluster.rollout_deployment import RolloutDeployment
from plait.cluster.workers import MakeWorkers
from plait.config.run import RunSettings
from plait.observe.events import EngineSample
from plait.rollout.scheduler import Scheduler
from plait.rollout.service import RolloutService
from plait.tasks.compute import ComputeListener, ToTrainer
from plait.types.errors import WorkerFailure


class OwnCompute:
    """`scheduler` decides whose request goes next, and where; None: as the settings say.

    The cache's disk tier, if there is one, lies in `kv_folder`.
    """

    def __init__(
        self,
        settings: RunSettings,
        model_path: str,
        scheduler: Scheduler | None = None,
        kv_folder: Path | None = None,
        make_workers: MakeWorkers | None = None,
    ) -> None:
        self._listener: ComputeListener | None = None
        self.deployment = RolloutDeployment(
            settings, model_path, len(settings.tasks), self, scheduler, kv_folder, make_workers
        )  # fmt: skip
        self.workers = self.deployment.workers

    @property
    def rollout(self) -> RolloutService:
        return self.deployment.rollout

    def rollout_of(self, task: str) -> RolloutService:
        return self.rollout

    @property
    def worker_names(self) -> tuple[str, ...]:
        return self.workers.names

    async def start(self, listener: ComputeListener) -> Ready:
        self._listener = listener
        return await self.deployment.start()

    async def close(self) -> None:
        await self.deployment.close()

    def train(self, message: ToTrainer) -> None:
        self.deployment.train(message)

    # ---- DeploymentListener

    @property
    def _told(self) -> ComputeListener:
        assert self._listener is not None, "nothing comes before `start`"
        return self._listener

    def on_message(self, worker: str, message: FromWorker) -> None:
        if isinstance(message, Busy | TaskOpened | UpdateDone | JobFailed | Starting):
            self._told.on_message(worker, message)

    def on_engine(self, sample: EngineSample) -> None:
        self._told.on_engine(sample)

    def on_worker_lost(self, worker: str, roles: Sequence[str], failure: WorkerFailure) -> None:
        self._told.on_worker_lost(worker, failure)

    def on_adapters_lost(self, owners: Sequence[str], num_trainers: int) -> None:
        """That they may be opened again is what matters."""

    def on_reopen(self, owners: Sequence[str]) -> None:
        self._told.on_reopen(owners)

    def on_trainer_ready(self) -> None:
        pass

    def on_failed(self, error: Exception) -> None:
        self._told.on_failed(error)
