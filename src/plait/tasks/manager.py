"""The multi-task manager: events in, commands out. Pure: the service and a simulator drive this same object.

- A strict task rolls out step n only from version n-1, and trains it only on tokens of version n-1.
- Batches train in the order in which they became ready, over all tasks; at most `MAX_UPDATES_IN_FLIGHT` are with the trainer.
- A publish of one task changes nothing for any other.
- A task that fails or is cancelled ends alone; what it had queued is dropped.
- A paused task starts nothing new; what runs completes, so its next step starts where it would have.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from plait.tasks.commands import Command, Evaluate, OpenTask, RollOut, StopTask, Train, WarmStep
from plait.tasks.gate import check_policies
from plait.tasks.lifecycle import ENDED, TaskState, check_transition
from plait.tasks.plan import TaskPlan
from plait.types.errors import PolicyError
from plait.types.policy import PolicyVersion

MAX_UPDATES_IN_FLIGHT = 2
"""One that trains and one whose slices may go in between; more would only queue at the worker."""


@dataclass(slots=True)
class _Task:
    plan: TaskPlan
    state: TaskState = TaskState.CREATED
    cause: str = ""
    version: int | None = None
    """Latest committed version; None until the task is opened."""
    last_started_step: int = 0
    evaluations: dict[int, float] = field(default_factory=dict)
    evaluating: set[int] = field(default_factory=set)
    evaluated: set[int] = field(default_factory=set)
    stop_after: int | None = None
    """Early stopping: no step past this one is started."""

    @property
    def last_step(self) -> int:
        return self.plan.total_steps if self.stop_after is None else self.stop_after

    def trained_by(self, step: int) -> PolicyVersion:
        """The version that step `step` starts from."""
        return PolicyVersion(self.plan.tenant, self.plan.name, step - 1)


class TaskManager:
    def __init__(self) -> None:
        self._tasks: dict[str, _Task] = {}
        self._fifo: deque[tuple[str, int]] = deque()
        self._updating: list[str] = []

    # ---- what is

    def state(self, task: str) -> TaskState:
        return self._tasks[task].state

    def cause(self, task: str) -> str:
        return self._tasks[task].cause

    def version(self, task: str) -> int:
        version = self._tasks[task].version
        return 0 if version is None else version

    @property
    def all_ended(self) -> bool:
        return all(task.state in ENDED for task in self._tasks.values())

    @property
    def queued(self) -> tuple[tuple[str, int], ...]:
        return tuple(self._fifo)

    def best_evaluation(self, task: str) -> int | None:
        """The version of the best held-out accuracy so far, the earliest of equals."""
        scores = self._tasks[task].evaluations
        return max(sorted(scores), key=lambda version: scores[version]) if scores else None

    def protected_versions(self, task: str) -> tuple[int, ...]:
        """Versions whose records must stay: those being evaluated, and the best."""
        best = self.best_evaluation(task)
        return tuple(sorted(self._tasks[task].evaluating | ({best} if best is not None else set())))

    # ---- what happens

    def add(self, plan: TaskPlan) -> list[Command]:
        self._tasks[plan.name] = _Task(plan)
        return [OpenTask(plan.name)]

    def opened(self, task: str, version: int, evaluations: dict[int, float] | None = None) -> list[Command]:
        """The task's latest version is known; `evaluations` are those of an earlier run that is resumed."""
        entry = self._tasks[task]
        entry.version = entry.last_started_step = version
        entry.evaluations = dict(evaluations or {})
        entry.evaluated = set(entry.evaluations)
        if entry.state == TaskState.CREATED:
            self._enter(task, TaskState.RUNNING)
        self._judge(entry)
        return self._advance(task)

    def batch_ready(self, task: str, step: int, policies: Sequence[PolicyVersion]) -> list[Command]:
        """A step's batch is complete (of a warm step: without policies). It joins the queue, or its task fails at the gate."""
        entry = self._tasks[task]
        if entry.state in ENDED:
            return []
        try:
            check_policies(policies, entry.trained_by(step), entry.plan.max_staleness)
        except PolicyError as error:
            return self.failed(task, str(error))
        self._fifo.append((task, step))
        return self._start_updates()

    def committed(self, task: str, step: int) -> list[Command]:
        """Step `step` is durable: version `step` is the latest."""
        entry = self._tasks[task]
        self._updating.remove(task)
        entry.version = step
        return self._start_updates() + self._advance(task)

    def evaluated(self, task: str, version: int, accuracy: float) -> list[Command]:
        entry = self._tasks[task]
        entry.evaluating.discard(version)
        entry.evaluated.add(version)
        entry.evaluations[version] = accuracy
        self._judge(entry)
        return self._advance(task)

    def failed(self, task: str, cause: str) -> list[Command]:
        return self._end(task, TaskState.FAILED, cause)

    def cancel(self, task: str) -> list[Command]:
        return self._end(task, TaskState.CANCELLED, "cancelled")

    def pause(self, task: str) -> list[Command]:
        self._enter(task, TaskState.PAUSED)
        return []

    def resume(self, task: str) -> list[Command]:
        self._enter(task, TaskState.RUNNING)
        return self._advance(task)

    # ---- what follows

    def _enter(self, task: str, state: TaskState, cause: str = "") -> None:
        check_transition(task, self._tasks[task].state, state)
        self._tasks[task].state, self._tasks[task].cause = state, cause

    def _end(self, task: str, state: TaskState, cause: str) -> list[Command]:
        if self._tasks[task].state in ENDED:
            return []
        self._enter(task, state, cause)
        self._fifo = deque(item for item in self._fifo if item[0] != task)
        if task in self._updating:
            self._updating.remove(task)
        return [StopTask(task, state, cause), *self._start_updates()]

    def _start_updates(self) -> list[Command]:
        commands: list[Command] = []
        while self._fifo and len(self._updating) < MAX_UPDATES_IN_FLIGHT:
            place = next((i for i, (task, step) in enumerate(self._fifo) if self._may_train(task, step)), None)
            if place is None:
                break
            task, step = self._fifo[place]
            del self._fifo[place]
            self._updating.append(task)
            commands.append(Train(task, step))
        return commands

    def _may_train(self, task: str, step: int) -> bool:
        return task not in self._updating and self._tasks[task].version == step - 1

    def _advance(self, task: str) -> list[Command]:
        entry = self._tasks[task]
        if entry.state != TaskState.RUNNING or entry.version is None:
            return []
        commands = self._due_evaluation(entry) + self._due_steps(entry)
        if entry.version >= entry.last_step and not entry.evaluating:
            self._enter(task, TaskState.DONE)
            commands.append(StopTask(task, TaskState.DONE, ""))
        return commands

    def _due_evaluation(self, entry: _Task) -> list[Command]:
        version = entry.version
        assert version is not None
        when = entry.plan.evaluation_due(version)
        if when is None and version == entry.stop_after and entry.plan.has_evaluation:
            when = "after"
        if when is None or version in entry.evaluated or version in entry.evaluating:
            return []
        entry.evaluating.add(version)
        return [Evaluate(entry.plan.name, version, when)]

    def _due_steps(self, entry: _Task) -> list[Command]:
        commands: list[Command] = []
        while self._may_start(entry, entry.last_started_step + 1):
            entry.last_started_step += 1
            step = entry.last_started_step
            assert entry.version is not None
            if entry.plan.is_warm(step):
                commands.append(WarmStep(entry.plan.name, step))
            else:
                commands.append(RollOut(entry.plan.name, step, entry.version))
        return commands

    def _may_start(self, entry: _Task, step: int) -> bool:
        assert entry.version is not None
        if step > entry.last_step:
            return False
        lead = step - 1 - entry.version
        return lead == 0 if entry.plan.is_warm(step) or lead <= 0 else lead <= entry.plan.max_staleness and not entry.plan.is_warm(entry.version + 1)

    def _judge(self, entry: _Task) -> None:
        """Early stopping: enough is reached, or the last evaluations brought no gain."""
        plan, scores = entry.plan, entry.evaluations
        rl = [scores[version] for version in sorted(scores) if version > plan.warm_steps]
        if not rl or entry.stop_after is not None:
            return
        enough = plan.target_accuracy is not None and rl[-1] >= plan.target_accuracy
        patience = plan.patience_evaluations
        stuck = patience is not None and len(rl) > patience and max(rl[-patience:]) <= max(rl[:-patience]) + plan.min_gain
        if enough or stuck:
            entry.stop_after = min(plan.total_steps, max(entry.last_started_step, entry.version or 0))
