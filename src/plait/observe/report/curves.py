"""Reward and accuracy per task as data for the charts. What was not measured has no point."""

from typing import Any

from plait.observe.events import StepCommitted
from plait.observe.report.history import RunHistory, TaskHistory

MAX_POINTS = 1_000
"""Most points of one curve; of more steps every nth is drawn, and the last."""


def curve_data(history: RunHistory) -> dict[str, Any]:
    tasks = [_task_curve(name, task) for name, task in history.tasks.items()]
    low, high = _range(tasks)
    return {"tasks": tasks, "low": low, "high": high}


def thin_steps(steps: list[StepCommitted], max_steps: int) -> list[StepCommitted]:
    """All of them, or every nth and the last."""
    if len(steps) <= max_steps:
        return steps
    stride = -(-len(steps) // max_steps)
    return [step for number, step in enumerate(steps) if number % stride == 0 or number == len(steps) - 1]


def _task_curve(name: str, task: TaskHistory) -> dict[str, Any]:
    steps = task.ordered_steps
    warm = [step.step for step in steps if step.phase == "warm_start"]
    rewarded = thin_steps([step for step in steps if step.reward_mean is not None], MAX_POINTS)
    return {
        "name": name,
        "rewards": [[step.step, step.reward_mean, step.reward_std] for step in rewarded],
        "accuracy": [[point.version, point.accuracy, point.num_questions] for point in task.ordered_evaluations],
        "warm_start": [min(warm) - 1, max(warm)] if warm else None,
        "last_step": steps[-1].step if steps else 0,
    }


def _range(tasks: list[dict[str, Any]]) -> tuple[float, float]:
    """One scale for all tasks, so that their curves compare: 0 to 1, or more where rewards go further."""
    values = [point[1] for task in tasks for point in [*task["rewards"], *task["accuracy"]]]
    finite = [value for value in values if value == value and abs(value) != float("inf")]
    return min([0.0, *finite]), max([1.0, *finite])
