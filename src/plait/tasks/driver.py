"""The driver of a run: carries out what the task manager decides. One event loop, no polling, no blocking.

- Facts go to the event log first, then to listeners. A step's event is the one sealed in its record.
- Every task runs apart: what it awaits, and what goes wrong in it, is its own.
- A lost worker is replaced: rollouts run again from what had been returned, a lost update from its batch.
"""

import asyncio
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from plait import __version__
from plait.cluster.messages import Busy, ChunksDone, CloseTask, FromWorker, JobFailed, OpenTask, TaskOpened, UpdateDone
from plait.cluster.workers import TRAIN_WORKER, Workers
from plait.config.run import RunSettings
from plait.config.task import TaskSettings
from plait.environments.pool import EnvironmentPool
from plait.models.tokenizer import Tokenizer
from plait.observe.events import (
    AnyEvent,
    EvaluationDone,
    Note,
    PhaseSpan,
    RunEnded,
    RunStarted,
    TaskStateChanged,
    WorkerLost,
    WorkerSpan,
)
from plait.observe.log import EventLog
from plait.rollout.concurrency import ConcurrencyController
from plait.rollout.service import RolloutService
from plait.state.rundir import RunDirectory
from plait.tasks.collector import Collector
from plait.tasks.commands import Command, Evaluate, RollOut, StopTask, Train, WarmStep
from plait.tasks.commands import OpenTask as OpenTaskCommand
from plait.tasks.episodes import EpisodeRunner
from plait.tasks.manager import TaskManager
from plait.tasks.plan import plan_of
from plait.tasks.ready_batch import ReadyBatch
from plait.types.errors import PlaitError, WorkerFailure
from plait.types.policy import LOCAL_TENANT, AdapterRef

Listener = Callable[[AnyEvent], None]


@dataclass(slots=True)
class _Running:
    """What a task has going on."""

    settings: TaskSettings
    refs: dict[int, AdapterRef] = field(default_factory=dict)
    batches: dict[int, ReadyBatch] = field(default_factory=dict)
    updating: ReadyBatch | None = None
    jobs: set[asyncio.Task[None]] = field(default_factory=set)


class RunDriver:
    def __init__(
        self,
        settings: RunSettings,
        directory: RunDirectory,
        model_path: str,
        tokenizer: Tokenizer,
        environments: EnvironmentPool,
        log: EventLog,
        past_evaluations: dict[str, dict[int, float]] | None = None,
    ) -> None:
        self.settings, self.directory, self.environments, self.log = settings, directory, environments, log
        self.past_evaluations = past_evaluations or {}
        self.manager = TaskManager()
        self.workers = Workers(settings, model_path, self._on_message, self._on_worker_lost, self._on_worker_ready, self._abort)
        self.concurrency = ConcurrencyController(settings.engine.max_rows)
        self.rollout = RolloutService(settings.engine.chunk_tokens, self._row_limit)
        runner = EpisodeRunner(settings, tokenizer, environments, self.rollout)
        self.collector = Collector(settings, directory, runner, self.emit)
        self.tasks = {task.name: _Running(task) for task in settings.tasks}
        self.listeners: list[Listener] = []
        self._ended = asyncio.Event()
        self._error: Exception | None = None

    def _row_limit(self) -> int:
        return self.concurrency.limit if self.settings.engine.adaptive_concurrency else self.settings.engine.max_rows

    # ---- the run

    async def run(self, resumed: bool = False) -> str:
        """Run all tasks to their ends; "done", or "failed" if any task failed. Raises what ended the run as a whole."""
        status = "interrupted"
        try:
            await self._start(resumed)
            await self._ended.wait()
            if self._error is not None:
                raise self._error
            status = "failed" if any(self.manager.state(name) == "failed" for name in self.tasks) else "done"
        except (PlaitError, WorkerFailure):
            status = "failed"
            raise
        finally:
            await self._close(status)
        return status

    async def _start(self, resumed: bool) -> None:
        ready = await self.workers.start()
        self.emit(
            RunStarted(
                time_s=time.time(), run=self.directory.name, model=self.settings.model.path, dtype=self.settings.model.dtype,
                device=ready.device, tasks=tuple(self.tasks), workers=self.workers.names, batch_invariant=ready.batch_invariant,
                plait_version=__version__, process_id=_process_id(), resumed=resumed,
            )
        )  # fmt: skip
        if not ready.batch_invariant and self.settings.engine.batch_invariant == "auto":
            self.emit(Note(time_s=time.time(), level="warning", message=f"not batch invariant: {ready.invariance_detail}"))
        self.rollout.attach(self.workers)
        self.workers.lend_threads(trainer_is_idle=True)
        for running in self.tasks.values():
            self._do(self.manager.add(plan_of(running.settings, LOCAL_TENANT)))

    async def _close(self, status: str) -> None:
        jobs = [job for running in self.tasks.values() for job in running.jobs]
        for job in jobs:
            job.cancel()
        await asyncio.gather(*jobs, return_exceptions=True)
        await self.workers.close()
        self.emit(RunEnded(time_s=time.time(), status=status))

    def emit(self, event: AnyEvent) -> None:
        self.log.append(event)
        for listener in self.listeners:
            listener(event)

    def _abort(self, error: Exception) -> None:
        self._error = error
        self._ended.set()

    # ---- control from outside

    def pause(self, task: str) -> None:
        self._do(self.manager.pause(task))
        self._tell_state(task)

    def resume(self, task: str) -> None:
        commands = self.manager.resume(task)
        self._tell_state(task)
        self._do(commands)

    def cancel(self, task: str) -> None:
        self._do(self.manager.cancel(task))

    # ---- commands

    def _do(self, commands: Sequence[Command]) -> None:
        for command in commands:
            self._carry_out(command)

    def _carry_out(self, command: Command) -> None:
        running = self.tasks[command.task]
        match command:
            case OpenTaskCommand():
                self._open(running)
            case WarmStep(task, step):
                self._spawn(running, self._warm_step(running, step))
            case RollOut(task, step, version):
                self._spawn(running, self._roll_out(running, step, version))
            case Evaluate(task, version, when):
                self._spawn(running, self._evaluate(running, version, when))
            case Train(task, step):
                self._train(running, step)
            case StopTask(cause=cause):
                self._stop(running, cause)

    def _open(self, running: _Running) -> None:
        name = running.settings.name
        folder = str(self.directory.steps_folder(name))
        keep = self.settings.state.keep_every_steps
        self.workers.train(OpenTask(LOCAL_TENANT, running.settings.model_dump_json(), folder, keep))

    def _spawn(self, running: _Running, work) -> None:  # type: ignore[no-untyped-def]
        """Run a job of a task; if it fails, its task fails with the cause."""
        job = asyncio.create_task(self._guarded(running.settings.name, work))
        running.jobs.add(job)
        job.add_done_callback(running.jobs.discard)

    async def _guarded(self, task: str, work) -> None:  # type: ignore[no-untyped-def]
        try:
            await work
        except PlaitError as error:
            self._do(self.manager.failed(task, str(error)))
        except Exception as error:
            self._do(self.manager.failed(task, "".join(traceback.format_exception(error)).strip()))

    async def _warm_step(self, running: _Running, step: int) -> None:
        batch = await self.collector.demonstrations(running.settings, step)
        self._batch_ready(running, step, batch)

    async def _roll_out(self, running: _Running, step: int, version: int) -> None:
        batch = await self.collector.collect(running.settings, step, running.refs[version])
        self._batch_ready(running, step, batch)

    def _batch_ready(self, running: _Running, step: int, batch: ReadyBatch) -> None:
        running.batches[step] = batch
        self._do(self.manager.batch_ready(running.settings.name, step, batch.policies))

    async def _evaluate(self, running: _Running, version: int, when: str) -> None:
        task, start_s = running.settings.name, time.time()
        accuracy, num_questions, num_errors = await self.collector.evaluate(running.settings, running.refs[version])
        now_s = time.time()
        self.emit(PhaseSpan(time_s=now_s, task=task, phase="evaluation", step=version, start_s=start_s))
        self.emit(
            EvaluationDone(
                time_s=now_s, task=task, version=version, accuracy=accuracy, num_questions=num_questions, num_errors=num_errors, when=when
            )
        )  # fmt: skip
        self._do(self.manager.evaluated(task, version, accuracy))

    def _train(self, running: _Running, step: int) -> None:
        batch = running.batches.pop(step)
        running.updating = batch
        batch.sent_s = time.time()
        self.emit(PhaseSpan(time_s=batch.sent_s, task=running.settings.name, phase="queued", step=step, start_s=batch.ready_s))
        self.workers.lend_threads(trainer_is_idle=False)
        self._send_update(running, batch)

    def _send_update(self, running: _Running, batch: ReadyBatch) -> None:
        self.workers.train(batch.update(self.manager.protected_versions(running.settings.name)))

    def _stop(self, running: _Running, cause: str) -> None:
        name = running.settings.name
        current = _current_job()
        for job in list(running.jobs):
            if job is not current:
                job.cancel()
        running.batches.clear()
        running.updating = None
        self.workers.train(CloseTask(name))
        self._tell_state(name)
        if self.manager.all_ended:
            self._ended.set()

    def _tell_state(self, task: str) -> None:
        self.emit(TaskStateChanged(time_s=time.time(), task=task, state=self.manager.state(task), cause=self.manager.cause(task)))

    # ---- messages

    def _on_message(self, worker: str, message: FromWorker) -> None:
        match message:
            case ChunksDone(results):
                self.rollout.on_results(results)
            case Busy():
                self._on_busy(worker, message)
            case TaskOpened():
                self._on_opened(message)
            case UpdateDone():
                self._on_update_done(message)
            case JobFailed(task, error):
                self._do(self.manager.failed(task, error))

    def _on_busy(self, worker: str, busy: Busy) -> None:
        if busy.num_rows:
            self.concurrency.observe(busy.num_tokens, busy.end_s - busy.start_s, busy.num_rows)
        self.emit(WorkerSpan(time_s=busy.end_s, worker=worker, start_s=busy.start_s, task=busy.task, num_tokens=busy.num_tokens))

    def _on_opened(self, message: TaskOpened) -> None:
        running, version = self.tasks[message.task], message.ref.policy.version
        running.refs[version] = message.ref
        for damage in message.damage:
            self.emit(Note(time_s=time.time(), level="warning", message=damage, task=message.task))
        if running.updating is None:
            commands = self.manager.opened(message.task, version, self.past_evaluations.get(message.task))
            self._tell_state(message.task)
            self._do(commands)
        elif message.event is not None and message.event.step == running.updating.step:
            self._on_update_done(UpdateDone(message.task, message.ref, message.event))  # it was durable before the worker was lost
        else:
            self._send_update(running, running.updating)

    def _on_update_done(self, message: UpdateDone) -> None:
        running = self.tasks[message.task]
        if running.updating is None:
            return  # the task has ended meanwhile; its record stands
        start_s, running.updating = running.updating.sent_s, None
        running.refs[message.event.step] = message.ref
        phase = "warm_start" if message.event.phase == "warm_start" else "training"
        self.emit(PhaseSpan(time_s=time.time(), task=message.task, phase=phase, step=message.event.step, start_s=start_s))
        self.emit(message.event)
        commands = self.manager.committed(message.task, message.event.step)
        self.workers.lend_threads(trainer_is_idle=all(r.updating is None for r in self.tasks.values()))
        self._do(commands)

    def _on_worker_lost(self, worker: str, failure: WorkerFailure) -> None:
        self.emit(WorkerLost(time_s=time.time(), worker=worker, cause=str(failure)))
        if worker != TRAIN_WORKER:
            self.rollout.detach()

    def _on_worker_ready(self, roles: Sequence[str]) -> None:
        if "rollout" in roles:
            self.rollout.attach(self.workers)
        if "train" in roles:
            for name, running in self.tasks.items():
                if self.manager.state(name) in ("created", "running", "paused"):
                    self._open(running)


def _current_job() -> asyncio.Task | None:  # type: ignore[type-arg]
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None


def _process_id() -> int:
    import os

    return os.getpid()
