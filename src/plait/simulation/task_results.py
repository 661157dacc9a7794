"""Scenarios of kind "tasks": each system's simulation, and its figures."""

from collections.abc import Callable
from typing import Any

from plait.simulation import task_systems
from plait.simulation.results import SystemResult, WorkRow
from plait.simulation.scenario import TaskScenario, TaskSettings, TaskSystem
from plait.simulation.task_simulation import TaskRun, TaskSimulation

OnStep = Callable[[], None]


def num_steps(scenario: TaskScenario, is_quick: bool) -> int:
    """Of all simulations together: what progress is measured by."""
    kinds = [task_systems.shape(task, scenario.systems[0], 0, is_quick) for task in scenario.tasks]
    together = sum(shape.steps * task.count for shape, task in zip(kinds, scenario.tasks, strict=True))
    alone = sum(shape.steps for shape in kinds) if scenario.measure_slowdowns else 0
    return len(scenario.systems) * together + alone


def simulate_tasks(scenario: TaskScenario, seed: int, is_quick: bool, on_step: OnStep | None = None) -> list[SystemResult]:
    alone_s = _alone(scenario, seed, is_quick, on_step) if scenario.measure_slowdowns else {}
    return [_simulate(scenario, system, seed, is_quick, alone_s, on_step) for system in scenario.systems]


def _alone(scenario: TaskScenario, seed: int, is_quick: bool, on_step: OnStep | None) -> dict[str, float]:
    """Kind -> how long a task of it takes with the whole cluster for itself, under Plait."""
    system = TaskSystem(name="alone")
    found = {}
    for task in scenario.tasks:
        shape = task_systems.shape(task.model_copy(update={"arrival_s": 0.0}), system, 0, is_quick)
        found[task.name] = TaskSimulation(scenario, system, seed, on_step).run([shape]).end_s
    return found


def _simulate(
    scenario: TaskScenario, system: TaskSystem, seed: int, is_quick: bool, alone_s: dict[str, float], on_step: OnStep | None
) -> SystemResult:
    run = TaskSimulation(scenario, system, seed, on_step).run(task_systems.shapes(scenario.tasks, system, is_quick))
    works = tuple(_works(scenario.tasks, run, alone_s))
    bin_s, groups, series = run.recorder.lines(run.end_s)
    figures: dict[str, float | None] = {
        **_rates(scenario, run), **_times(run, works), **_shares(run, {line.name: line for line in groups}),
        **_levels({line.name: line for line in series}),
    }  # fmt: skip
    return SystemResult(system.name, run.end_s, figures, bin_s, groups, series, run.recorder.summaries(), works)


def _works(tasks: tuple[TaskSettings, ...], run: TaskRun, alone_s: dict[str, float]) -> list[WorkRow]:
    rows = []
    for task in tasks:
        for number in range(task.count):
            name = task.name if task.count == 1 else f"{task.name}-{number + 1}"
            done = run.tasks[name]
            slowdown = (done.end_s - done.arrival_s) / alone_s[task.name] if task.name in alone_s else None
            rows.append(WorkRow(name, task.name, done.arrival_s, done.first_s, done.end_s, done.steps, slowdown))
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
