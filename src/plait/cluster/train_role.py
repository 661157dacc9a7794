"""The training half of a worker: one trainer per task, updates run slice by slice, steps made durable here.

- A task is opened from its latest valid record. Without one it starts pristine, or from the adapter that its settings name, with a
  record of version 0.
- A failing update ends its task alone: its gradients are dropped and JobFailed tells why.
"""

import time
import traceback
from dataclasses import dataclass
from pathlib import Path

import msgspec

from plait import __version__
from plait.cluster.job_queue import JobQueue, Progress
from plait.cluster.messages import AdapterClosed, CloseTask, FromWorker, JobFailed, OpenTask, TaskOpened, Update, UpdateDone
from plait.cluster.recorded_adapter import RecordedAdapter
from plait.cluster.start_from import start_state
from plait.cluster.trained_weights import AdapterBase, TrainedWeights, trained_weights
from plait.config.task import LossSettings, TaskSettings
from plait.observe.events import StepCommitted
from plait.state.records import list_steps
from plait.state.retention import thin_records
from plait.state.start_point import read_start
from plait.state.step_record import StepRecord
from plait.training.policy_trainer import RunningPass
from plait.training.training_pass import PassResult
from plait.types.errors import PlaitError, StateError
from plait.types.lora import LoraConfig

WARM_START_LOSS = LossSettings(kind="cross_entropy")


@dataclass(slots=True)
class _OpenTask:
    tenant: str
    settings: TaskSettings
    keep_every_steps: int
    adapter: RecordedAdapter


@dataclass(slots=True)
class _UpdateJob:
    """A slice is a micro-batch; the last one steps and commits too."""

    task: _OpenTask
    message: Update
    training: RunningPass
    start_s: float = 0.0
    """When the first slice began."""

    @property
    def owner(self) -> str:
        return self.message.task

    @property
    def tenant(self) -> str:
        return self.task.tenant

    @property
    def num_slices_left(self) -> int:
        return self.training.num_slices_left

    def run(self, num_waited: int) -> Progress:
        try:
            self.start_s = self.start_s or time.time()
            next(self.training, None)
            if self.training.num_slices_left:
                return Progress()
            done = self._finish()
        except Exception as error:
            return Progress(is_over=True, replies=[_failed(self.owner, error)])
        return Progress(is_over=True, replies=[done], num_tokens=done.event.num_trained_tokens)

    def _finish(self) -> UpdateDone:
        task, adapter = self.task, self.task.adapter
        result, trainer = self.training.result(), adapter.trainer
        if trainer.has_gradients:
            stepped = trainer.optim_step(task.settings.optimizer, self.message.learning_rate)
        else:
            stepped = trainer.skip_step()
        event = _complete_event(self, result, stepped["grad_norm"])
        adapter.commit(
            StepRecord(
                task=event.task, step=event.step, phase=event.phase, data_cursor=self.message.data_cursor,
                seed=task.settings.seed, base_digest=adapter.base.digest, plait_version=__version__, event=event,
            )
        )  # fmt: skip
        keep_every_steps = None if adapter.weights.training == "full" else task.keep_every_steps
        thin_records(adapter.folder, keep_every_steps, self.message.protected_steps)
        assert adapter.record.event is not None
        return UpdateDone(self.owner, adapter.ref(task.tenant), adapter.record.event)


class TrainRole:
    def __init__(self, base: AdapterBase, queue: JobQueue) -> None:
        self.base, self.queue = base, queue
        self.tasks: dict[str, _OpenTask] = {}

    def handle(self, message: OpenTask | Update | CloseTask) -> list[FromWorker]:
        name = message.task if not isinstance(message, OpenTask) else ""
        try:
            match message:
                case OpenTask():
                    name = message.key or TaskSettings.model_validate_json(message.settings_json).name
                    return [self._open(message)]
                case Update():
                    self._enqueue(message)
                case CloseTask(task):
                    self._close(task)
                    return [AdapterClosed(task)]
        except Exception as error:
            return [_failed(name, error)]
        return []

    def _open(self, message: OpenTask) -> TaskOpened:
        settings = TaskSettings.model_validate_json(message.settings_json)
        lora = LoraConfig(settings.lora.rank, settings.lora.alpha, settings.lora.target_modules, settings.lora.seed)
        key = message.key or settings.name
        self._close(key)
        first = StepRecord(
            task=settings.name, step=0, phase="rl", data_cursor=0, seed=settings.seed,
            base_digest=self.base.digest, plait_version=__version__,
        )  # fmt: skip
        weights = trained_weights(settings.training, self.base, lora)
        if settings.start_from is None:
            adapter = RecordedAdapter(weights, Path(message.steps_folder), first, begin=weights.pristine)
        else:
            adapter = self._started(weights, Path(message.steps_folder), first, Path(settings.start_from))
        self.tasks[key] = _OpenTask(message.tenant, settings, message.keep_every_steps, adapter)
        record = adapter.record
        return TaskOpened(key, adapter.ref(message.tenant), record.data_cursor, record.event, adapter.damage)

    def _started(self, weights: TrainedWeights, folder: Path, first: StepRecord, start: Path) -> RecordedAdapter:
        """From the latest record or, where there is none, from the adapter in `start`."""
        if not list_steps(folder):
            first = msgspec.structs.replace(first, start_digest=read_start(start).digest)
        return RecordedAdapter(weights, folder, first, begin=lambda: start_state(start, weights))

    def _close(self, task: str) -> None:
        self.queue.remove(task)
        if task in self.tasks:
            self.tasks.pop(task).adapter.close()

    def _enqueue(self, message: Update) -> None:
        task = self.tasks[message.task]
        version = task.adapter.record.step
        if message.event.step != version + 1:
            raise StateError(
                f"step {message.event.step} of task {message.task!r} was asked for, but version {version} is the latest.",
                "A step trains once, on the latest version.",
            )
        loss = WARM_START_LOSS if message.event.phase == "warm_start" else task.settings.loss
        self.queue.add(message.task, _UpdateJob(task, message, task.adapter.trainer.start(message.datums, loss)))


def _failed(task: str, error: Exception) -> JobFailed:
    return JobFailed(task, f"{error}" if isinstance(error, PlaitError) else "".join(traceback.format_exception(error)).strip())


def _complete_event(job: _UpdateJob, result: PassResult, grad_norm: float) -> StepCommitted:
    now, metrics = time.time(), result.metrics
    return msgspec.structs.replace(
        job.message.event,
        time_s=now,
        queued_s=job.start_s - job.message.ready_s,
        training_s=now - job.start_s,
        loss=metrics.get("loss", 0.0),
        grad_norm=grad_norm,
        learning_rate=job.message.learning_rate,
        kl_to_base=metrics.get("kl_to_base"),
        ratio_mean=metrics.get("ratio_mean"),
        logprob_gap_max=metrics.get("logprob_gap_max"),
    )
