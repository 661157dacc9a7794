"""Chooses each kind's mean delay so that a task of it, alone, keeps its rollout worker busy for a wanted share of the time.

The delays of every sample are known beforehand (`environments.delay`), so the wait of a step is known for a mean of one second;
how long a step takes without delays is measured.
"""

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean

from benchmarks.marlaas_run import RunResult
from benchmarks.marlaas_tasks import Kind
from plait.config.environments import CalculatorSettings, DelaySettings
from plait.config.task import TaskSettings
from plait.environments.delay import delay_s
from plait.observe.events import StepCommitted, TaskStateChanged, WorkerSpan

TARGET_UTILISATION = 0.225
ACCEPTED_UTILISATION = (0.20, 0.25)
MIN_DELAY_S = 0.01

RunTasks = Callable[[Mapping[str, float]], tuple[Sequence[TaskSettings], RunResult]]
"""Mean delay by kind -> one task of each kind, in order, each trained alone with a rollout worker of its own."""


def calibrate(kinds: Sequence[Kind], run: RunTasks, num_corrections: int = 1) -> dict[str, float]:
    """Mean delay in seconds by kind."""
    tasks, result = run({})
    busy_s, cycle_s = lone_times(result)
    wanted_s = {t.name: max(0.0, busy_s[t.name] / TARGET_UTILISATION - cycle_s[t.name]) for t in tasks}
    delays_s = {
        k.name: max(MIN_DELAY_S, wanted_s[t.name] / unit_wait_s(with_unit_delay(t, k))) for k, t in zip(kinds, tasks, strict=True)
    }
    for _ in range(num_corrections):
        tasks, result = run(delays_s)
        busy_s, with_delay_s = lone_times(result)
        for kind, task in zip(kinds, tasks, strict=True):
            missing_s = busy_s[task.name] / TARGET_UTILISATION - with_delay_s[task.name]
            change = missing_s / unit_wait_s(with_unit_delay(task, kind))
            delays_s[kind.name] = max(MIN_DELAY_S, delays_s[kind.name] + change)
    return delays_s


def lone_times(result: RunResult) -> tuple[dict[str, float], dict[str, float]]:
    """Per step, by task: seconds in which the rollout worker was busy, and seconds from step to step.

    For tasks that ran one after another with a rollout worker apart from the trainer.
    """
    opened_s = {e.task: e.time_s for e in reversed(result.events) if isinstance(e, TaskStateChanged) and e.state == "running"}
    steps_s: dict[str, list[float]] = {}
    for event in result.events:
        if isinstance(event, StepCommitted):
            steps_s.setdefault(event.task, []).append(event.time_s)
    spans = [e for e in result.events if isinstance(e, WorkerSpan) and e.worker == "rollout"]
    busy_s, cycle_s = {}, {}
    for task, times in steps_s.items():
        inside_s = sum(max(0.0, min(e.time_s, times[-1]) - max(e.start_s, opened_s[task])) for e in spans)
        busy_s[task] = inside_s / len(times)
        cycle_s[task] = (times[-1] - opened_s[task]) / len(times)
    return busy_s, cycle_s


def lone_utilisation(result: RunResult) -> dict[str, float]:
    """Busy share of the rollout worker while each task had it alone."""
    busy_s, cycle_s = lone_times(result)
    return {task: busy_s[task] / cycle_s[task] for task in busy_s}


def with_unit_delay(task: TaskSettings, kind: Kind) -> TaskSettings:
    delay = DelaySettings(kind=kind.delay, mean_s=1.0, sigma=kind.sigma)
    return task.model_copy(update={"environment": task.environment.model_copy(update={"delay": delay})})


def unit_wait_s(task: TaskSettings) -> float:
    """How long a step waits for its slowest episode, on average over the steps, by the delays alone."""
    environment = task.environment
    num_delays = 2 if isinstance(environment, CalculatorSettings) else 1

    def episode_s(index: int, sample: int) -> float:
        turns = range(num_delays) if num_delays > 1 else (1,)
        return sum(delay_s(environment.delay, environment.seed, f"train-{index}", sample, turn) for turn in turns)

    def step_s(step: int) -> float:
        indices = range(step * task.groups_per_step, (step + 1) * task.groups_per_step)
        return max(episode_s(index, sample) for index in indices for sample in range(task.group_size))

    return fmean(step_s(step) for step in range(task.steps))
