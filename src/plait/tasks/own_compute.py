"""Worker processes for one run alone."""

from collections.abc import Sequence

from plait.cluster.messages import ROLLOUT, Busy, ChunksDone, FromWorker, JobFailed, Ready, TaskOpened, UpdateDone
from plait.cluster.workers import TRAIN_WORKER, Workers, configurations
from plait.config.run import RunSettings
from plait.rollout.buffer import RequestBuffer
from plait.rollout.concurrency import ConcurrencyController
from plait.rollout.service import RolloutService
from plait.tasks.compute import ComputeListener, ToTrainer
from plait.types.errors import WorkerFailure


class OwnCompute:
    """`buffer` decides whose request goes next."""

    def __init__(self, settings: RunSettings, model_path: str, buffer: RequestBuffer | None = None) -> None:
        engine = settings.engine
        self._engine = engine
        self._listener: ComputeListener | None = None
        self.workers = Workers(
            configurations(settings, model_path, len(settings.tasks)), settings.workers.max_restarts,
            self._on_message, self._on_lost, self._on_ready, self._on_failed,
        )  # fmt: skip
        self.concurrency = ConcurrencyController(engine.max_rows, start_rows=engine.max_rows // 2)
        self.rollout = RolloutService(engine.chunk_tokens, self._row_limit, buffer or RequestBuffer.for_rows(engine.max_rows))

    def _row_limit(self) -> int:
        return self.concurrency.limit if self._engine.adaptive_concurrency else self._engine.max_rows

    @property
    def worker_names(self) -> tuple[str, ...]:
        return self.workers.names

    async def start(self, listener: ComputeListener) -> Ready:
        self._listener = listener
        ready = await self.workers.start()
        self.rollout.attach(self.workers)
        self.workers.lend_threads(trainer_is_idle=True)
        return ready

    async def close(self) -> None:
        await self.workers.close()

    def train(self, message: ToTrainer) -> None:
        self.workers.train(message)

    def note_training(self, is_idle: bool) -> None:
        self.workers.lend_threads(trainer_is_idle=is_idle)

    # ---- what comes back

    def _on_message(self, worker: str, message: FromWorker) -> None:
        match message:
            case ChunksDone(results):
                self.rollout.on_results(results)
            case Busy():
                self._on_busy(worker, message)
            case TaskOpened() | UpdateDone() | JobFailed():
                self._told.on_message(worker, message)

    @property
    def _told(self) -> ComputeListener:
        assert self._listener is not None, "nothing comes before `start`"
        return self._listener

    def _on_busy(self, worker: str, busy: Busy) -> None:
        if busy.num_rows:
            self.concurrency.observe(busy.num_tokens, busy.end_s - busy.start_s, busy.num_rows)
            self.rollout.pump()
        self._told.on_message(worker, busy)

    def _on_lost(self, worker: str, failure: WorkerFailure) -> None:
        self._told.on_worker_lost(worker, failure)
        if worker != TRAIN_WORKER:
            self.rollout.detach()

    def _on_ready(self, roles: Sequence[str]) -> None:
        if ROLLOUT in roles:
            self.rollout.attach(self.workers)
        self._told.on_worker_ready(roles)

    def _on_failed(self, error: Exception) -> None:
        self._told.on_failed(error)
        self.rollout.fail_all(error)
