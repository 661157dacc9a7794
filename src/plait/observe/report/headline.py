"""What the top of the report says: the run in one line, each task's gain, the run's key figures."""

import msgspec

from plait.observe.report.history import RunHistory
from plait.observe.snapshot import RunSnapshot, TaskSnapshot
from plait.observe.text import duration, last_line, local_time, model_name, one_line

MAX_CAUSE_CHARACTERS = 200


class TaskHeadline(msgspec.Struct, frozen=True):
    task: str
    measure: str
    """"held-out accuracy", or "reward" where nothing was evaluated."""
    before: str
    after: str
    gain: str
    trend: str
    """"up", "down" or "flat"."""
    state: str
    cause: str
    steps: str
    num_errors: int


class Figure(msgspec.Struct, frozen=True):
    name: str
    value: str
    explanation: str


def task_headline(history: RunHistory, task: TaskSnapshot) -> TaskHeadline:
    measure, before, after = _first_and_last(history, task)
    gain = None if before is None or after is None else after - before
    steps = f"{task.step} of {task.total_steps} steps" if task.total_steps is not None else f"{task.step} steps"
    steps += f" on {model_name(task.model)}" if task.model else ""
    is_accuracy = measure == "held-out accuracy"
    show = _percent if is_accuracy else _number
    return TaskHeadline(
        task=task.task,
        measure=measure,
        before=show(before),
        after=show(after),
        gain="" if gain is None else f"{100 * gain:+.1f} points" if is_accuracy else f"{gain:+.2f}",
        trend="flat" if gain is None or gain == 0 else "up" if gain > 0 else "down",
        state=task.state.replace("_", " "),
        cause=one_line(last_line(task.cause), MAX_CAUSE_CHARACTERS),
        steps=steps,
        num_errors=task.num_errors,
    )


def _first_and_last(history: RunHistory, task: TaskSnapshot) -> tuple[str, float | None, float | None]:
    evaluations = history.tasks[task.task].ordered_evaluations
    if evaluations:
        last = evaluations[-1].accuracy if len(evaluations) > 1 or task.accuracy_before is None else None
        return "held-out accuracy", task.accuracy_before, last
    rewards = [step.reward_mean for step in history.tasks[task.task].ordered_steps if step.reward_mean is not None]
    return ("reward", rewards[0], rewards[-1]) if rewards else ("held-out accuracy", None, None)


def _percent(share: float | None) -> str:
    """One decimal, so that the gain beside it adds up."""
    return "-" if share is None else f"{100 * share:.1f} %"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def subtitle(history: RunHistory, run: RunSnapshot) -> list[str]:
    parts = [
        model_name(run.model),
        f"{run.device}, {run.dtype}" if run.device else "",
        _count(len(history.tasks), "task"),
        duration(run.active_s),
    ]
    if history.start is not None:
        parts.append(local_time(history.start.time_s, "%d %B %Y, %H:%M %Z").lstrip("0"))
    if run.num_starts > 1:
        parts.append(f"resumed {_times(run.num_starts - 1)}")
    return [part for part in parts if part]


def figures(history: RunHistory, run: RunSnapshot) -> list[Figure]:
    steps = [step for task in history.tasks.values() for step in task.steps.values()]
    sampled_tokens = sum(step.num_sampled_tokens or 0 for step in steps)
    found = [
        Figure("steps", f"{run.steps:,}", "optimizer steps of all tasks"),
        Figure("steps per hour", _or_dash(run.steps_per_hour, "{:,.0f}"), "over the time the run was up"),
        Figure(
            "time to first step", "-" if run.time_to_first_step_s is None else duration(run.time_to_first_step_s), "of any task"
        ),
        Figure("sampled tokens", f"{sampled_tokens:,}", "that were trained on"),
    ]
    gaps = [step.logprob_gap_max for step in steps if step.logprob_gap_max is not None]
    if gaps:
        found.append(
            Figure("trainer - sampler gap", f"{max(gaps):.2g} nats", "largest log-probability difference; 0 is exactly on-policy")
        )
    return found


def _or_dash(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _times(number: int) -> str:
    return {1: "once", 2: "twice"}.get(number, f"{number} times")
