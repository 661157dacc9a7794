"""One system's simulation of tasks, with what is recorded of it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import simpy

from plait.simulation import task_systems
from plait.simulation.check_scenario import cache_tokens, rollout_devices
from plait.simulation.results import FIRST_BIN_S, Recorder
from plait.simulation.rollout import SimulatedRollout
from plait.simulation.scenario import TaskScenario, TaskSystem
from plait.simulation.step_record import StepRecord
from plait.simulation.task_shape import TaskShape
from plait.simulation.tasks import SimulatedTasks
from plait.simulation.trainer import SimulatedTrainer

NUM_SAMPLES = 2_000
"""Caches and queues are looked at so often, about; the time between two looks grows with the simulation."""

OnSteps = Callable[[float], None]
"""Steps since the last call; one that rolls out counts as the share of its samples that is scored."""


@dataclass(slots=True)
class TaskProgress:
    """Of one task: times of the simulation."""

    arrival_s: float
    steps: int = 0
    first_s: float | None = None
    end_s: float = 0.0


@dataclass(slots=True)
class TaskRun:
    recorder: Recorder
    end_s: float = 0.0
    tasks: dict[str, TaskProgress] = field(default_factory=dict)
    row_s: float = 0.0
    """Rows times seconds, of all engines."""
    num_engines: int = 0


class TaskSimulation:
    """`on_steps` is called now and then."""

    def __init__(self, scenario: TaskScenario, system: TaskSystem, seed: int, on_steps: OnSteps | None = None) -> None:
        self.env = simpy.Environment()
        self._on_steps, self._steps_told = on_steps, 0.0
        per_engine = scenario.rollout.devices_per_engine
        is_shared = system.layout == "shared"
        rolling, training = rollout_devices(scenario), scenario.training.devices
        if is_shared:
            rolling = training = scenario.cluster.devices // per_engine * per_engine
        groups = {"all devices": rolling} if is_shared else {"rollout": rolling, "training": training}
        self._rollout_group, self._training_group = ("all devices",) * 2 if is_shared else ("rollout", "training")
        self._per_engine, self._training_devices = per_engine, training
        self.run_result = TaskRun(Recorder(groups), num_engines=rolling // per_engine)
        engine_costs, train_costs = task_systems.costs(scenario, per_engine), task_systems.costs(scenario, training)
        engines = {f"engine-{number}": engine_costs for number in range(rolling // per_engine)}
        self.rollout = SimulatedRollout(
            self.env, task_systems.scheduler(system, list(engines)), engines, cache_tokens(scenario),
            system.max_rows or scenario.rollout.max_rows, task_systems.chunk_tokens(scenario, system), self._engine_was_busy,
            kind=task_systems.engine_kind(system), adapts_rows=scenario.rollout.adapts_rows, is_staged=system.staged,
            pool_tokens=scenario.rollout.pool_tokens,
        )  # fmt: skip
        self._trainer = SimulatedTrainer(self.env, "trainer", scenario.training.micro_batch_tokens, self._trainer_was_busy)
        self._tasks = SimulatedTasks(
            self.env,
            self.rollout,
            self._trainer,
            train_costs,
            seed,
            on_record=self._committed,
            manager=task_systems.manager(system),
            knows_lengths=system.knows_lengths,
            over_issue=system.over_issue,
        )
        self._left = 0

    def run(self, shapes: Sequence[TaskShape]) -> TaskRun:
        """Until all tasks have ended."""
        self._left = sum(shape.steps for shape in shapes)
        for shape in shapes:
            self.run_result.tasks[shape.name] = TaskProgress(shape.arrival_s)
            self._tasks.add(shape)
        self._sample()
        self.env.run()
        self.run_result.end_s = max(progress.end_s for progress in self.run_result.tasks.values())
        return self.run_result

    # ---- what happens

    def _engine_was_busy(self, engine: str, start_s: float, end_s: float, num_rows: int) -> None:
        self.run_result.recorder.busy(self._rollout_group, start_s, end_s, self._per_engine)
        self.run_result.row_s += num_rows * (end_s - start_s)

    def _trainer_was_busy(self, trainer: str, start_s: float, end_s: float, update: str) -> None:
        self.run_result.recorder.busy(self._training_group, start_s, end_s, self._training_devices)

    def _committed(self, step: StepRecord) -> None:
        progress, recorder = self.run_result.tasks[step.task], self.run_result.recorder
        progress.steps += 1
        progress.first_s = step.end_s if progress.first_s is None else progress.first_s
        progress.end_s = step.end_s
        recorder.wait("step", step.end_s - step.start_s)
        recorder.wait("rollout", step.ready_s - step.start_s)
        recorder.wait("tail", step.ready_s - step.tail_start_s)
        recorder.wait("ready to commit", step.end_s - step.ready_s)
        recorder.count("sampled_tokens", step.num_sampled_tokens)
        recorder.count("steps")
        self._left -= 1
        self._tell()

    def _tell(self) -> None:
        if self._on_steps is not None:
            steps = sum(progress.steps for progress in self.run_result.tasks.values()) + self._tasks.steps_under_way
            self._on_steps(steps - self._steps_told)
            self._steps_told = steps

    def _sample(self) -> None:
        """Look at caches and queues, and again later, while there is something to do."""
        now_s, recorder = self.env.now, self.run_result.recorder
        engines = self.rollout.dispatcher.engines
        reserved, room = sum([engine.reserved_tokens for engine in engines]), sum([engine.cache_tokens for engine in engines])
        recorder.value("caches reserved", now_s, reserved / room)
        recorder.value("generations waiting", now_s, self.rollout.scheduler.num_waiting)
        recorder.value("generations running", now_s, self.rollout.scheduler.num_running)
        self._tell()
        if self._left:
            next_s = max(FIRST_BIN_S, now_s * 2 / NUM_SAMPLES)
            self.env.timeout(next_s).callbacks.append(lambda _: self._sample())
