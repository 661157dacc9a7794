"""A driver without engine, trainer or clock: it completes the manager's commands in any order, and checks every promise."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

from plait.tasks.commands import Command, Evaluate, OpenTask, RollOut, StopTask, Train, WarmStep
from plait.tasks.lifecycle import ENDED, TaskState
from plait.tasks.manager import TaskManager
from plait.tasks.plan import TaskPlan
from plait.tasks.update_queue import MAX_UPDATES_IN_FLIGHT
from plait.types.policy import PolicyVersion


@dataclass
class SimulatedRun:
    plans: Sequence[TaskPlan]
    random: Random
    score: Callable[[str, int], float] = lambda task, version: 0.0
    committed: dict[str, int] = field(default_factory=dict)
    """The newest durable version of each task; what a killed run leaves behind."""
    evaluations: dict[str, dict[int, float]] = field(default_factory=dict)
    manager: TaskManager = field(default_factory=TaskManager)
    commands: dict[str, list[Command]] = field(default_factory=dict)
    """Each task's commands, in order."""
    outstanding: list[Command] = field(default_factory=list)
    ready: list[tuple[str, int]] = field(default_factory=list)
    """Batches at the gate, in order; kept apart from the manager's own queue."""
    opened: set[str] = field(default_factory=set)

    def start(self) -> "SimulatedRun":
        for plan in self.plans:
            self.committed.setdefault(plan.name, 0)
            self.evaluations.setdefault(plan.name, {})
            self.commands[plan.name] = []
            self.take(self.manager.add(plan))
        return self

    def plan(self, task: str) -> TaskPlan:
        return next(plan for plan in self.plans if plan.name == task)

    # ---- commands

    def take(self, commands: Sequence[Command]) -> None:
        for command in commands:
            self.check(command)
            self.commands[command.task].append(command)
            if isinstance(command, StopTask):
                self.ready = [item for item in self.ready if item[0] != command.task]
            else:
                self.outstanding.append(command)
        assert not self._overdue(), "a batch that may train is held back"

    def check(self, command: Command) -> None:
        assert not self._has_stopped(command.task), f"{command} after the end"
        match command:
            case WarmStep(task, step) | RollOut(task, step):
                self._check_step(task, step)
                if isinstance(command, RollOut):
                    self._check_version(command)
            case Train(task, step):
                self._check_train(task, step)
            case Evaluate(task, version):
                assert version <= self.committed[task]
                assert version not in self.evaluations[task], "an evaluation is repeated"
                assert self.manager.state(task) not in (TaskState.PAUSED, *ENDED)
            case StopTask(task, state):
                assert self.manager.state(task) == state
                assert state in ENDED

    def _has_stopped(self, task: str) -> bool:
        return any(isinstance(command, StopTask) for command in self.commands[task])

    def _check_step(self, task: str, step: int) -> None:
        started = [c.step for c in self.commands[task] if isinstance(c, WarmStep | RollOut)]
        assert step == (started[-1] + 1 if started else self.committed[task] + 1), "steps start once and in order"
        assert self.manager.state(task) == TaskState.RUNNING

    def _check_version(self, command: RollOut) -> None:
        plan = self.plan(command.task)
        assert command.version == self.committed[command.task] >= plan.warm_steps, (
            "the newest version rolls out, after the warm start"
        )
        assert 0 <= command.step - 1 - command.version <= plan.max_staleness

    def _check_train(self, task: str, step: int) -> None:
        assert step == self.committed[task] + 1
        assert task not in self._training(), "two updates of one task"
        assert len(self._training()) < MAX_UPDATES_IN_FLIGHT
        before = self.ready[: self.ready.index((task, step))]
        assert not [item for item in before if self._may_train(*item)], "a batch that was ready before is passed by"
        self.ready.remove((task, step))

    def _training(self) -> list[str]:
        return [c.task for c in self.outstanding if isinstance(c, Train) and not self._has_stopped(c.task)]

    def _may_train(self, task: str, step: int) -> bool:
        return step == self.committed[task] + 1 and task not in self._training()

    def _overdue(self) -> list[tuple[str, int]]:
        if len(self._training()) >= MAX_UPDATES_IN_FLIGHT:
            return []
        return [item for item in self.ready if self._may_train(*item)]

    # ---- events

    def complete(self, command: Command) -> None:
        """The command's outcome arrives; after its task's end it must change nothing."""
        self.outstanding.remove(command)
        has_stopped = self._has_stopped(command.task)
        commands = self._outcome(command)
        assert not (has_stopped and [c for c in commands if c.task == command.task])
        self.take(commands)

    def _outcome(self, command: Command) -> list[Command]:
        match command:
            case OpenTask(task):
                self.opened.add(task)
                return self.manager.opened(task, self.committed[task], self.evaluations[task], range(self.committed[task] + 1))
            case WarmStep(task, step):
                self._mark_ready(task, step)
                return self.manager.batch_ready(task, step, [])
            case RollOut(task, step, version):
                self._mark_ready(task, step)
                stamps = [PolicyVersion(self.plan(task).tenant, task, version)] * self.random.randrange(3)
                return self.manager.batch_ready(task, step, stamps)
            case Train(task, step):
                if not self._has_stopped(task):
                    self.committed[task] = step
                return self.manager.committed(task, step)
            case Evaluate(task, version):
                self.evaluations[task][version] = self.score(task, version)
                return self.manager.evaluated(task, version, self.evaluations[task][version])
        raise AssertionError(command)

    def _mark_ready(self, task: str, step: int) -> None:
        if not self._has_stopped(task):
            self.ready.append((task, step))

    def complete_any(self) -> None:
        self.complete(self.random.choice(self.outstanding))

    def run(self) -> "SimulatedRun":
        """Let everything end, in a random order."""
        bound = 10 + sum(4 * plan.total_steps + 10 for plan in self.plans)
        for _ in range(bound):
            if not self.outstanding:
                break
            self.complete_any()
        assert not self.outstanding, "more events than the plans explain"
        return self

    # ---- what came of it

    def steps(self, task: str) -> list[int]:
        return [c.step for c in self.commands[task] if isinstance(c, WarmStep | RollOut)]

    def trained(self, task: str) -> list[int]:
        return [c.step for c in self.commands[task] if isinstance(c, Train)]

    def evaluated(self, task: str) -> list[int]:
        return [c.version for c in self.commands[task] if isinstance(c, Evaluate)]


def due_versions(plan: TaskPlan, last_step: int) -> set[int]:
    """What is evaluated of a task that ends with `last_step`."""
    if not plan.has_evaluation:
        return set()
    return {v for v in range(last_step + 1) if plan.evaluation_due(v)} | {last_step}


def last_step(plan: TaskPlan, score: Callable[[str, int], float]) -> int:
    """Where a strict task ends, told without the manager: the plain reading of the settings."""
    seen: list[float] = []
    for version in range(plan.warm_steps + 1, plan.total_steps):
        if not plan.stops_early or plan.evaluation_due(version) is None:
            continue
        seen.append(score(plan.name, version))
        if plan.target_accuracy is not None and seen[-1] >= plan.target_accuracy:
            return version
        patience = plan.patience_evaluations
        if patience is not None and len(seen) > patience and max(seen[-patience:]) <= max(seen[:-patience]) + plan.min_gain:
            return version
    return plan.total_steps
