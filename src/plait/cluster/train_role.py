"""The training half of a worker: one trainer per task, updates run slice by slice, steps made durable here.

- A task is opened from its latest valid record, or starts pristine with a record of version 0.
- A failing update ends its task alone: its gradients are dropped and JobFailed tells why.
"""

import time
import traceback
from dataclasses import dataclass
from pathlib import Path

import msgspec
from torch import Tensor

from plait import __version__
from plait.cluster.messages import CloseTask, Configure, FromWorker, JobFailed, OpenTask, TaskOpened, Update, UpdateDone
from plait.config.task import LossSettings, TaskSettings
from plait.lora.initial import pristine_adapter
from plait.lora.peft_config import peft_config
from plait.lora.peft_format import from_peft_tensors, to_peft_tensors
from plait.models.decoder import Decoder
from plait.observe.events import StepCommitted
from plait.state.records import latest_record, read_adapter, read_optimizer, step_folder, write_record
from plait.state.recovery import check_base
from plait.state.retention import thin_records
from plait.state.step_record import StepRecord
from plait.state.writer_lock import WriterLock
from plait.training.slices import SliceQueue
from plait.training.trainer import AdapterTrainer
from plait.training.training_pass import PassResult, PassSettings, TrainingPass
from plait.types.errors import PlaitError, StateError
from plait.types.lora import LoraConfig
from plait.types.policy import AdapterRef, PolicyVersion

WARM_START_LOSS = LossSettings(kind="cross_entropy")


@dataclass(slots=True)
class _OpenTask:
    tenant: str
    settings: TaskSettings
    folder: Path
    keep_every_steps: int
    lora: LoraConfig
    trainer: AdapterTrainer
    record: StepRecord
    lock: WriterLock

    @property
    def ref(self) -> AdapterRef:
        policy = PolicyVersion(self.tenant, self.settings.name, self.record.step)
        return AdapterRef(policy, str(step_folder(self.folder, self.record.step)), self.record.adapter_digest)


@dataclass(slots=True)
class _Job:
    message: Update
    training: TrainingPass
    start_s: float = 0.0
    """When the first slice began."""


class TrainRole:
    def __init__(self, settings: Configure, decoder: Decoder, base_digest: str) -> None:
        self.decoder, self.base_digest, self.base_name = decoder, base_digest, settings.model_path
        self.passes = PassSettings(settings.micro_batch_tokens, settings.checkpoint_layers)
        self.tasks: dict[str, _OpenTask] = {}
        self.jobs: dict[str, _Job] = {}
        self.queue = SliceQueue()

    def handle(self, message: OpenTask | Update | CloseTask) -> list[FromWorker]:
        name = message.task if not isinstance(message, OpenTask) else ""
        try:
            match message:
                case OpenTask():
                    name = TaskSettings.model_validate_json(message.settings_json).name
                    return [self._open(message)]
                case Update():
                    self._enqueue(message)
                case CloseTask(task):
                    self._close(task)
        except Exception as error:
            return [self._failed(name, error)]
        return []

    @property
    def has_work(self) -> bool:
        return len(self.queue) > 0

    def work(self) -> tuple[str, list[FromWorker], int]:
        """Run one slice: the task it was for, what to report, tokens trained if the update is complete."""
        task = self.queue.next()
        job = self.jobs[task]
        try:
            job.start_s = job.start_s or time.time()
            next(job.training, None)
            self.queue.ran(task)
            if job.training.num_slices_left:
                return task, [], 0
            done = self._finish(job)
        except Exception as error:
            self._drop(task)
            return task, [self._failed(task, error)], 0
        self._drop(task)
        return task, [done], done.event.num_trained_tokens

    def _failed(self, task: str, error: Exception) -> JobFailed:
        return JobFailed(task, f"{error}" if isinstance(error, PlaitError) else "".join(traceback.format_exception(error)).strip())

    def _drop(self, task: str) -> None:
        self.queue.remove(task)
        del self.jobs[task]

    # ---- opening

    def _open(self, message: OpenTask) -> TaskOpened:
        settings = TaskSettings.model_validate_json(message.settings_json)
        folder = Path(message.steps_folder)
        lora = LoraConfig(settings.lora.rank, settings.lora.alpha, settings.lora.target_modules, settings.lora.seed)
        self._close(settings.name)
        lock = WriterLock(folder)
        latest = latest_record(folder)
        record = latest.record or self._first_record(folder, settings, lora)
        check_base(record, self.base_digest)
        tensors, optimizer = self._read(folder, record, lora)
        trainer = AdapterTrainer(self.decoder, lora, tensors, self.passes)
        trainer.load_state(tensors, optimizer)
        opened = _OpenTask(message.tenant, settings, folder, message.keep_every_steps, lora, trainer, record, lock)
        self.tasks[settings.name] = opened
        return TaskOpened(settings.name, opened.ref, record.data_cursor, record.event, latest.damage)

    def _read(self, folder: Path, record: StepRecord, lora: LoraConfig) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        stored, _ = read_adapter(folder, record)
        return from_peft_tensors(stored, self.decoder.config, lora), read_optimizer(folder, record)

    def _first_record(self, folder: Path, settings: TaskSettings, lora: LoraConfig) -> StepRecord:
        tensors = pristine_adapter(self.decoder.config, lora)
        optimizer = AdapterTrainer(self.decoder, lora, tensors, self.passes).state_tensors()
        record = StepRecord(
            task=settings.name, step=0, phase="rl", data_cursor=0, seed=settings.seed,
            base_digest=self.base_digest, plait_version=__version__,
        )  # fmt: skip
        return write_record(folder, 0, to_peft_tensors(tensors), peft_config(lora, self.base_name), optimizer, record)

    def _close(self, task: str) -> None:
        if task in self.jobs:
            self._drop(task)
        if task in self.tasks:
            self.tasks.pop(task).lock.release()

    # ---- updating

    def _enqueue(self, message: Update) -> None:
        task = self.tasks[message.task]
        if message.event.step != task.record.step + 1:
            raise StateError(
                f"step {message.event.step} of task {message.task!r} was asked for, but version {task.record.step} is the latest.",
                "A step trains once, on the latest version.",
            )
        loss = WARM_START_LOSS if message.event.phase == "warm_start" else task.settings.loss
        training = task.trainer.start(message.datums, loss)
        self.jobs[message.task] = _Job(message, training)
        self.queue.add(message.task, training.num_slices_left)

    def _finish(self, job: _Job) -> UpdateDone:
        task = self.tasks[job.message.task]
        result, trainer = job.training.result(), task.trainer
        if trainer.has_gradients:
            stepped = trainer.optim_step(task.settings.optimizer, job.message.learning_rate)
        else:
            stepped = trainer.skip_step()
        event = _complete_event(job, result, stepped["grad_norm"])
        task.record = self._write(task, job.message, event)
        thin_records(task.folder, task.keep_every_steps, job.message.protected_steps)
        assert task.record.event is not None
        return UpdateDone(job.message.task, task.ref, task.record.event)

    def _write(self, task: _OpenTask, message: Update, event: StepCommitted) -> StepRecord:
        record = StepRecord(
            task=event.task, step=event.step, phase=event.phase, data_cursor=message.data_cursor, seed=task.settings.seed,
            base_digest=self.base_digest, plait_version=__version__, event=event,
        )  # fmt: skip
        trainer = task.trainer
        weights = to_peft_tensors(trainer.adapter_tensors())
        return write_record(
            task.folder, event.step, weights, peft_config(task.lora, self.base_name), trainer.state_tensors(), record
        )  # fmt: skip


def _complete_event(job: _Job, result: PassResult, grad_norm: float) -> StepCommitted:
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
