"""The driver of a run: carries out what the task manager decides. One event loop, no polling, no blocking.

- Facts go to the event log first, then to listeners. A step's event is the one sealed in its record.
- Every task runs apart: what it awaits, and what goes wrong in it, is its own.
- A lost worker is replaced: rollouts run again from what had been returned, a lost update from its batch.
- The workers may be the run's own or shared with others (`Compute`).
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence

from plait.cluster.messages import Busy, JobFailed, Starting, TaskOpened, UpdateDone
from plait.config.run import RunSettings
from plait.environments.pool import EnvironmentPool
from plait.models.tokenizer import Tokenizer
from plait.observe import events as e
from plait.observe.log import EventLog
from plait.observe.under_way import UnderWay
from plait.state.records import list_steps
from plait.state.rundir import RunDirectory
from plait.tasks.collector import Collector
from plait.tasks.commands import Command, Evaluate, OpenTask, RollOut, StopTask, Train, WarmStep
from plait.tasks.compute import Compute, ToRun
from plait.tasks.episodes import EpisodeRunner
from plait.tasks.gap_alarm import gap_problem
from plait.tasks.identity import ALONE, RunIdentity
from plait.tasks.jobs import TaskJobs
from plait.tasks.lifecycle import ENDED, TaskState
from plait.tasks.manager import TaskManager
from plait.tasks.past_run import PastRun
from plait.tasks.plan import plan_of
from plait.tasks.ready_batch import ReadyBatch
from plait.tasks.run_models import num_trainers, start_events
from plait.tasks.trainer_link import TrainerLink
from plait.tasks.update_queue import MAX_UPDATES_IN_FLIGHT
from plait.types.errors import PlaitError, WorkerFailure

Listener = Callable[[e.AnyEvent], None]


class RunDriver:
    """`manager` is the policy: a benchmark or a later scheduler may bring its own. `tokenizer` by task, or of all."""

    def __init__(
        self,
        settings: RunSettings,
        directory: RunDirectory,
        compute: Compute,
        tokenizer: Tokenizer | Mapping[str, Tokenizer],
        environments: EnvironmentPool,
        log: EventLog,
        past: PastRun | None = None,
        manager: TaskManager | None = None,
        identity: RunIdentity = ALONE,
        under_way: UnderWay | None = None,
    ) -> None:
        self.settings, self.directory, self.log = settings, directory, log
        self.compute, self.identity = compute, identity
        self.past, self.under_way = past or PastRun(), under_way or UnderWay()
        self.manager = manager or TaskManager(MAX_UPDATES_IN_FLIGHT * num_trainers(settings))
        self.tasks = {task.name: task for task in settings.tasks}
        self.listeners: list[Listener] = []
        self.trainer = TrainerLink(
            settings, directory, compute, identity, self.emit, self._on_opened, self._on_committed, self.past.steps
        )
        tokenizers = tokenizer if isinstance(tokenizer, Mapping) else dict.fromkeys(self.tasks, tokenizer)
        runner = EpisodeRunner(settings, tokenizers, environments, compute.rollout_of)
        self.collector = Collector(settings, directory, runner, self.emit, identity, self.under_way)
        self.jobs = TaskJobs(self._job_failed)
        self._batches: dict[tuple[str, int], ReadyBatch] = {}
        self._batch_invariant = False
        self._ended = asyncio.Event()
        self._error: Exception | None = None

    # ---- the run

    async def run(self, resumed: bool = False) -> str:
        """Run all tasks to their ends; "done", or "failed" if any task failed. Raises what ended the run as a whole."""
        status = "interrupted"
        try:
            await self._start(resumed)
            await self._ended.wait()
            if self._error is not None:
                raise self._error
            status = "failed" if any(self.manager.state(name) == TaskState.FAILED for name in self.tasks) else "done"
        except PlaitError:
            status = "failed"
            raise
        finally:
            await self._close(status)
        return status

    async def _start(self, resumed: bool) -> None:
        with self.under_way.doing("", "start", "starting the workers"):
            ready = await self.compute.start(self)
        self._batch_invariant = ready.batch_invariant
        for event in start_events(self.settings, self.directory.name, ready, self.compute.worker_names, resumed):
            self.emit(event)
        opening = {task.name: self.manager.add(plan_of(task, self.identity)) for task in self.settings.tasks}
        for task, commands in opening.items():
            self._do(self._as_left(task, commands))

    def _as_left(self, task: str, opening: list[Command]) -> list[Command]:
        """What takes a task up in the state that it was left in."""
        past = self.past.states.get(task)
        if past is not None and past.state == TaskState.CANCELLED:
            return self.manager.cancel(task)
        if past is not None and past.state == TaskState.FAILED:
            return self.manager.failed(task, past.cause)
        if past is not None and past.state == TaskState.PAUSED:
            return [*self.manager.pause(task), *opening]
        return opening

    async def _close(self, status: str) -> None:
        await self.jobs.close()
        self.trainer.close_all()
        await self.compute.close()
        self.emit(e.RunEnded(time_s=time.time(), status=status))

    def emit(self, event: e.AnyEvent) -> None:
        self.log.append(event)
        for listener in self.listeners:
            try:
                listener(event)
            except Exception as error:  # Raised here it would end the reader of a worker, and the run would wait for ever.
                self.on_failed(error)

    def on_failed(self, error: Exception) -> None:
        """End the run with `error`; its tasks are as they were."""
        self._error = error
        self._ended.set()

    def _job_failed(self, task: str, cause: str) -> None:
        if self._error is None:
            self._do(self.manager.failed(task, cause))

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
        match command:
            case OpenTask(task):
                self.trainer.open(task)
            case WarmStep(task, step):
                self.jobs.start(task, self._warm_step(task, step))
            case RollOut(task, step, version):
                self.jobs.start(task, self._roll_out(task, step, version))
            case Evaluate(task, version, when):
                self.jobs.start(task, self._evaluate(task, version, when))
            case Train(task, step):
                self.under_way.begin(task, "training", f"training step {step}")
                self.trainer.send(self._batches.pop((task, step)), self.manager.protected_versions(task))
            case StopTask(task):
                self._stop(task)

    async def _warm_step(self, task: str, step: int) -> None:
        self._batch_ready(await self.collector.demonstrations(self.tasks[task], step))

    async def _roll_out(self, task: str, step: int, version: int) -> None:
        self._batch_ready(await self.collector.collect(self.tasks[task], step, self.trainer.ref(task, version)))

    def _batch_ready(self, batch: ReadyBatch) -> None:
        self._batches[batch.task, batch.step] = batch
        self._do(self.manager.batch_ready(batch.task, batch.step, batch.policies))

    async def _evaluate(self, task: str, version: int, when: str) -> None:
        start_s = time.time()
        accuracy, num_questions, num_errors = await self.collector.evaluate(self.tasks[task], self.trainer.ref(task, version))
        now_s = time.time()
        self.emit(e.PhaseSpan(time_s=now_s, task=task, phase="evaluation", step=version, start_s=start_s))
        self.emit(e.EvaluationDone(
            time_s=now_s, task=task, version=version, accuracy=accuracy, num_questions=num_questions, num_errors=num_errors,
            when=when,
        ))  # fmt: skip
        self._do(self.manager.evaluated(task, version, accuracy))

    def _stop(self, task: str) -> None:
        self.jobs.cancel(task)
        self.under_way.end_all(task)
        self._batches = {key: batch for key, batch in self._batches.items() if key[0] != task}
        self.trainer.close(task)
        self._tell_state(task)
        if self.manager.all_ended:
            self._ended.set()

    def _tell_state(self, task: str) -> None:
        state, cause = self.manager.state(task), self.manager.cause(task)
        self.emit(e.TaskStateChanged(time_s=time.time(), task=task, state=state, cause=cause))

    # ---- what comes back

    def on_message(self, worker: str, message: ToRun) -> None:
        match message:
            case Busy():
                self._on_busy(worker, message)
            case Starting(what):
                self.under_way.tell(worker, "start", what)
            case TaskOpened():
                self.trainer.opened(message)
            case UpdateDone():
                self.trainer.committed(message)
            case JobFailed(task, error):
                self._do(self.manager.failed(task, error))

    def on_engine(self, sample: e.EngineSample) -> None:
        self.emit(sample)

    def _on_busy(self, worker: str, busy: Busy) -> None:
        self.emit(e.WorkerSpan(time_s=busy.end_s, worker=worker, start_s=busy.start_s, task=busy.task, num_tokens=busy.num_tokens))

    def _on_opened(self, task: str, version: int) -> None:
        before = self.manager.state(task)
        kept = list_steps(self.directory.steps_folder(task))
        commands = self.manager.opened(task, version, self.past.evaluations.get(task), kept)
        if before == TaskState.CREATED and self.manager.state(task) == TaskState.RUNNING:
            self._tell_state(task)
        self._do(commands)

    def _on_committed(self, event: e.StepCommitted) -> None:
        self.under_way.end(event.task, "training")
        problem = gap_problem(event, self._batch_invariant)
        if problem:
            self.emit(e.Note(time_s=time.time(), level="warning", message=problem, task=event.task))
        self._do(self.manager.committed(event.task, event.step))

    def on_worker_lost(self, worker: str, failure: WorkerFailure) -> None:
        self.emit(e.WorkerLost(time_s=time.time(), worker=worker, cause=str(failure)))

    def on_reopen(self, tasks: Sequence[str]) -> None:
        for task in tasks:
            if self.manager.state(task) not in ENDED:
                self.trainer.open(task)
