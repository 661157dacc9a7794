"""The multi-task manager: events in, commands out. Pure: the service and a simulator drive this same object.

- A strict task rolls out step n only from version n-1, and trains it only on tokens of version n-1.
- Batches train in the order in which they became ready, over all tasks (`UpdateQueue`).
- A publish of one task changes nothing for any other.
- A task that fails or is cancelled ends alone; what it had queued is dropped, and what still comes in about it is ignored.
- A paused task starts no step and no evaluation; what runs completes, training included, and resuming goes on from there.
- Opening a task again, as after the loss of a worker, starts nothing twice.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from plait.tasks.commands import Command, OpenTask, StopTask, Train
from plait.tasks.lifecycle import ENDED, TaskState, check_transition
from plait.tasks.plan import TaskPlan
from plait.tasks.progress import TaskProgress
from plait.tasks.update_queue import MAX_UPDATES_IN_FLIGHT, UpdateQueue
from plait.types.errors import PlaitError
from plait.types.policy import PolicyVersion


@dataclass(slots=True)
class _Task:
    progress: TaskProgress
    state: TaskState = TaskState.CREATED
    cause: str = ""


class TaskManager:
    def __init__(self, max_updates_in_flight: int = MAX_UPDATES_IN_FLIGHT) -> None:
        self._tasks: dict[str, _Task] = {}
        self._updates = UpdateQueue(max_updates_in_flight)

    # ---- what is

    def state(self, task: str) -> TaskState:
        return self._tasks[task].state

    def cause(self, task: str) -> str:
        return self._tasks[task].cause

    def version(self, task: str) -> int:
        """The latest committed version; 0 before the task is opened."""
        return self._tasks[task].progress.version or 0

    @property
    def all_ended(self) -> bool:
        return all(task.state in ENDED for task in self._tasks.values())

    @property
    def queued(self) -> tuple[tuple[str, int], ...]:
        """(task, step) of the batches that wait for the trainer."""
        return self._updates.ready

    def best_evaluation(self, task: str) -> int | None:
        """The version of the best held-out accuracy so far, the earliest of equals."""
        return self._tasks[task].progress.best_version()

    def protected_versions(self, task: str) -> tuple[int, ...]:
        """Versions whose records must stay: those that roll out, are or will be evaluated, and the best."""
        return self._tasks[task].progress.protected_versions()

    # ---- what happens

    def add(self, plan: TaskPlan) -> list[Command]:
        if plan.name in self._tasks:
            raise PlaitError(f"a task {plan.name!r} exists already.", "Give each task its own name.")
        self._tasks[plan.name] = _Task(TaskProgress(plan))
        return [OpenTask(plan.name)]

    def opened(
        self, task: str, version: int, evaluations: Mapping[int, float] | None = None, kept_versions: Collection[int] = ()
    ) -> list[Command]:
        """The task's latest version is known.

        `evaluations` are those of an earlier run that is resumed; of `kept_versions`, whose records can still be read, those that
        it did not come to score are scored now.
        """
        entry = self._tasks[task]
        if entry.state in ENDED:
            return []
        if entry.progress.version is not None:
            return self._opened_again(task, version)
        entry.progress.open(version, evaluations or {}, kept_versions)
        if entry.state == TaskState.CREATED:
            self._enter(task, TaskState.RUNNING)
        return self._advance(task)

    def batch_ready(self, task: str, step: int, policies: Sequence[PolicyVersion]) -> list[Command]:
        """A step's batch is complete, with the policy of every sampled segment. It joins the queue, or its task fails at the gate.

        A batch without policies (of a warm step, or an empty one) may always train.
        """
        if self._has_ended(task):
            return []
        try:
            self._tasks[task].progress.collect(step, policies)
        except PlaitError as error:
            return self.failed(task, str(error))
        self._updates.add(task, step)
        return self._start_updates()

    def committed(self, task: str, step: int) -> list[Command]:
        """Step `step` is durable: version `step` is the latest."""
        if self._has_ended(task):
            return []
        try:
            self._tasks[task].progress.commit(step)
        except PlaitError as error:
            return self.failed(task, str(error))
        self._updates.finish(task)
        return self._start_updates() + self._advance(task)

    def evaluated(self, task: str, version: int, accuracy: float) -> list[Command]:
        """Version `version` has been scored; NaN if no question could be."""
        if self._has_ended(task):
            return []
        self._tasks[task].progress.score(version, accuracy)
        return self._advance(task)

    def failed(self, task: str, cause: str) -> list[Command]:
        return self._end(task, TaskState.FAILED, cause)

    def cancel(self, task: str) -> list[Command]:
        return self._end(task, TaskState.CANCELLED, "cancelled")

    def pause(self, task: str) -> list[Command]:
        """Raise PlaitError if the task is paused or has ended."""
        self._enter(task, TaskState.PAUSED)
        return []

    def resume(self, task: str) -> list[Command]:
        """Raise PlaitError if the task is not paused."""
        if self.state(task) != TaskState.PAUSED:
            raise PlaitError(f"task {task!r} is {self.state(task)}, not paused.", "Only a paused task is resumed.")
        self._enter(task, TaskState.RUNNING)
        return self._advance(task)

    # ---- what follows

    def _has_ended(self, task: str) -> bool:
        return self._tasks[task].state in ENDED

    def _enter(self, task: str, state: TaskState, cause: str = "") -> None:
        entry = self._tasks[task]
        check_transition(task, entry.state, state)
        entry.state, entry.cause = state, cause

    def _opened_again(self, task: str, version: int) -> list[Command]:
        latest = self._tasks[task].progress.version
        if version == latest:
            return []
        if self._updates.in_flight(task) == version:
            return self.committed(task, version)
        return self.failed(task, f"version {version} was found where version {latest} was committed: a record is lost.")

    def _end(self, task: str, state: TaskState, cause: str) -> list[Command]:
        if self._has_ended(task):
            return []
        self._enter(task, state, cause)
        self._updates.drop(task)
        return [StopTask(task, state, cause), *self._start_updates()]

    def _start_updates(self) -> list[Command]:
        return [Train(task, step) for task, step in self._updates.take(self._may_train)]

    def _may_train(self, task: str, step: int) -> bool:
        return self._tasks[task].progress.version == step - 1

    def _advance(self, task: str) -> list[Command]:
        """Start what the task may start; end it if nothing is left to do."""
        entry = self._tasks[task]
        commands: list[Command] = []
        if entry.state == TaskState.RUNNING and entry.progress.version is not None:
            commands += entry.progress.start()
        if entry.progress.is_complete and not self._has_ended(task):
            commands += self._end(task, TaskState.DONE, "")
        return commands
