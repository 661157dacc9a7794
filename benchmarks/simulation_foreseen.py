"""`marlaas` on SmolLM2, foreseen: no figure of the measured run is fitted (benchmarks/results/marlaas-real-model.json).

Costs are those of `plait profile` with two threads (benchmarks/results/profile-*.json). The workload is the benchmark's: its tasks,
and the very delays that were waited for, which are drawn beforehand. How long answers are comes from the tokens that it sampled.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import simpy

from benchmarks.marlaas_scenarios import REAL_MODEL
from benchmarks.marlaas_systems import SEQUENTIAL, SYNCHRONOUS
from benchmarks.marlaas_tasks import make_tasks
from benchmarks.simulation_changes import median_for
from benchmarks.simulation_machine import MARLAAS_NAMES, SYSTEMS
from plait.config.environments import CalculatorSettings
from plait.config.task import TaskSettings
from plait.environments.delay import delay_s
from plait.simulation import task_systems
from plait.simulation.costs import CostModel
from plait.simulation.lengths import Lengths
from plait.simulation.measured_costs import profile_costs
from plait.simulation.rollout import SimulatedRollout
from plait.simulation.task_shape import TaskShape
from plait.simulation.tasks import SimulatedTasks
from plait.simulation.trainer import SimulatedTrainer

RESULTS = Path(__file__).parent / "results"
PROMPT_TOKENS, OBSERVATION_TOKENS = 48, 24
"""About those of these environments."""
MAX_ROWS, CACHE_TOKENS, CHUNK_TOKENS = 64, 64 * 256, 512
SHARED = (SEQUENTIAL.name, SYNCHRONOUS.name)
"""One process that has both threads; elsewhere two processes have one each, and lend them to each other."""
FIGURES = ("steps_per_hour", "end_to_end_s", "time_to_first_step_s")

Foreseen = Mapping[str, float]


def foresee(rows: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, Mapping[str, Any], Foreseen]]:
    """(Case, what was measured of a system, what the simulation says of it)."""
    for row in rows:
        tasks = make_tasks(REAL_MODEL.kinds, row["tasks"], REAL_MODEL.steps, REAL_MODEL.max_new_tokens, row["mean_delays_s"])
        yield f"marlaas, SmolLM2, {row['tasks']} tasks, foreseen", row, _simulate(row, tasks)


def _simulate(row: Mapping[str, Any], tasks: Sequence[TaskSettings]) -> Foreseen:
    env, system = simpy.Environment(), SYSTEMS[MARLAAS_NAMES[row["system"]]]
    costs: CostModel = profile_costs(str(RESULTS / "profile-smollm2-2-threads.json"))
    rollout = SimulatedRollout(
        env, task_systems.scheduler(system, ["engine-0"]), {"engine-0": costs}, CACHE_TOKENS, MAX_ROWS, CHUNK_TOKENS,
        kind=task_systems.engine_kind(system), is_staged=system.staged,
    )  # fmt: skip
    firsts_s: list[float] = []
    simulated = SimulatedTasks(
        env, rollout, SimulatedTrainer(env, "train", 1 << 30), costs, 0,
        lambda task, step, time_s: firsts_s.append(time_s) if step == 1 else None, manager=task_systems.manager(system),
        delay_s=partial(_delay_s, {task.name: task for task in tasks}),
    )  # fmt: skip
    lengths = _lengths(row, tasks)
    for task in tasks:
        simulated.add(
            TaskShape(
                task.name,
                task.steps,
                task.groups_per_step,
                task.group_size,
                PROMPT_TOKENS,
                lengths,
                turns=_turns(task),
                observation_tokens=OBSERVATION_TOKENS,
            )
        )
    env.run()
    end_s = simulated.end_s
    num_steps = sum(task.steps for task in tasks)
    return dict(zip(FIGURES, (3600 * num_steps / end_s, end_s, sum(firsts_s) / len(firsts_s)), strict=True))


def _lengths(row: Mapping[str, Any], tasks: Sequence[TaskSettings]) -> Lengths:
    most = REAL_MODEL.max_new_tokens
    answers = sum(task.steps * task.groups_per_step * task.group_size * _turns(task) for task in tasks)
    return Lengths(median_for(row["sampled_tokens"] / answers, 1.0, most), 1.0, 0.0, most)


def _turns(task: TaskSettings) -> int:
    return 2 if isinstance(task.environment, CalculatorSettings) else 1


def _delay_s(tasks: Mapping[str, TaskSettings], shape: TaskShape, step: int, group: int, sample: int, turn: int) -> float:
    """Of the benchmark's own environment; those with one turn count it as 1."""
    task = tasks[shape.name]
    environment, index = task.environment, (step - 1) * task.groups_per_step + group
    return delay_s(environment.delay, environment.seed, f"train-{index}", sample, turn if shape.turns > 1 else 1)
