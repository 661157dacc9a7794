"""Scenarios of kind "tasks": each system's simulation, and its figures."""

from collections.abc import Sequence
from typing import Any

import msgspec

from plait.simulation import task_systems
from plait.simulation.results import SystemResult, WorkRow
from plait.simulation.scenario import TaskScenario, TaskSystem
from plait.simulation.task_shape import TaskShape
from plait.simulation.task_simulation import OnSteps, TaskRun, TaskSimulation

Kinds = Sequence[tuple[str, Sequence[TaskShape]]]
"""Each kind of task by name, with the tasks of it."""


def kinds_of(scenario: TaskScenario, is_quick: bool) -> Kinds:
    neutral = TaskSystem(name="any")
    return [
        (task.name, [task_systems.shape(task, neutral, number, is_quick) for number in range(task.count)])
        for task in scenario.tasks
    ]


def num_steps(scenario: TaskScenario, kinds: Kinds) -> int:
    """Of all simulations together: what progress is measured by."""
    together = sum(shape.steps for _, shapes in kinds for shape in shapes)
    alone = sum(shapes[0].steps for _, shapes in kinds) if scenario.measure_slowdowns else 0
    return len(scenario.systems) * together + alone


def simulate_tasks(scenario: TaskScenario, kinds: Kinds, seed: int, on_steps: OnSteps | None = None) -> list[SystemResult]:
    alone_s = _alone(scenario, kinds, seed, on_steps) if scenario.measure_slowdowns else {}
    return [_simulate(scenario, system, kinds, seed, alone_s, on_steps) for system in scenario.systems]


def _alone(scenario: TaskScenario, kinds: Kinds, seed: int, on_steps: OnSteps | None) -> dict[str, float]:
    """Kind -> how long its first task takes with the whole cluster for itself, under Plait."""
    system = TaskSystem(name="alone")
    found = {}
    for name, shapes in kinds:
        shape = msgspec.structs.replace(shapes[0], arrival_s=0.0)
        found[name] = TaskSimulation(scenario, system, seed, on_steps).run([shape]).end_s
    return found


def _simulate(
    scenario: TaskScenario, system: TaskSystem, kinds: Kinds, seed: int, alone_s: dict[str, float], on_steps: OnSteps | None
) -> SystemResult:
    shapes = [_under(shape, system) for _, members in kinds for shape in members]
    run = TaskSimulation(scenario, system, seed, on_steps).run(shapes)
    works = tuple(_works(kinds, run, alone_s))
    bin_s, groups, series = run.recorder.lines(run.end_s)
    figures: dict[str, float | None] = {
        **_rates(scenario, run), **_times(run, works), **_shares(run, {line.name: line for line in groups}),
        **_levels({line.name: line for line in series}),
    }  # fmt: skip
    return SystemResult(system.name, run.end_s, figures, bin_s, groups, series, run.recorder.summaries(), works)


def _under(shape: TaskShape, system: TaskSystem) -> TaskShape:
    return shape if system.max_staleness is None else msgspec.structs.replace(shape, max_staleness=system.max_staleness)


def _works(kinds: Kinds, run: TaskRun, alone_s: dict[str, float]) -> list[WorkRow]:
    rows = []
    for kind, shapes in kinds:
        for shape in shapes:
            done = run.tasks[shape.name]
            slowdown = (done.end_s - done.arrival_s) / alone_s[kind] if kind in alone_s else None
            rows.append(WorkRow(shape.name, kind, done.arrival_s, done.first_s, done.end_s, done.steps, slowdown))
    return rows


def _rates(scenario: TaskScenario, run: TaskRun) -> dict[str, float | None]:
    start_s = min(progress.arrival_s for progress in run.tasks.values())
    makespan_s = run.end_s - start_s
    counts = run.recorder.counts
    device_hours = scenario.cluster.devices * makespan_s / 3600
    price = scenario.cluster.price_per_device_hour
    return {
        "makespan_s": makespan_s,
        "steps_per_hour": 3600 * counts["steps"] / makespan_s,
        "tokens_per_s": counts["sampled_tokens"] / makespan_s,
        "rows_mean": run.row_s / (run.num_engines * makespan_s),
        "device_hours": device_hours,
        "device_hours_per_step": device_hours / counts["steps"],
        "cost": price * device_hours if price else None,
    }


def _times(run: TaskRun, works: tuple[WorkRow, ...]) -> dict[str, float | None]:
    summary = run.recorder.summary
    first_s = [work.start_s - work.arrival_s for work in works if work.start_s is not None]
    slowdowns = [work.slowdown for work in works if work.slowdown is not None]
    rollout_s = summary("rollout").mean
    return {
        "first_step_s": sum(first_s) / len(first_s),
        "step_s": summary("step").mean,
        "rollout_s": rollout_s,
        "rollout_tokens_per_s": run.recorder.counts["sampled_tokens"] / (rollout_s * run.recorder.counts["steps"])
        if rollout_s
        else None,
        "tail_s": summary("tail").mean,
        "tail_share": summary("tail").mean / rollout_s if rollout_s else None,
        "training_wait_s": summary("ready to commit").mean,
        "slowdown_mean": sum(slowdowns) / len(slowdowns) if slowdowns else None,
        "slowdown_max": max(slowdowns, default=None),
    }


def _shares(run: TaskRun, groups: dict[str, Any]) -> dict[str, float | None]:
    rollout, training = groups.get("rollout"), groups.get("training")
    return {
        "utilisation": run.recorder.utilisation(run.end_s),
        "rollout_utilisation": rollout.utilisation if rollout else None,
        "training_utilisation": training.utilisation if training else None,
    }


def _levels(series: dict[str, Any]) -> dict[str, float | None]:
    reserved = series["caches reserved"]
    return {"kv_mean": reserved.mean, "kv_peak": reserved.largest, "waiting_mean": series["generations waiting"].mean}
