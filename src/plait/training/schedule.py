"""The learning rate of each step, as a pure function: nothing to save, nothing to restore."""

import math

from plait.config.task import OptimizerSettings
from plait.types.errors import ConfigError


def learning_rate(settings: OptimizerSettings, step: int, total_steps: int) -> float:
    """Learning rate of optimizer step `step`, counted from 1 to `total_steps`.

    Grows linearly to the full rate at step `warmup_steps`, then follows `schedule`. The decaying schedules would reach
    zero one step after the last, so that every step moves. Raises ConfigError if the step is out of range.
    """
    if not 1 <= step <= total_steps:
        raise ConfigError(f"step {step} is outside the schedule of {total_steps} steps.", "Steps count from 1.")
    if step <= settings.warmup_steps:
        return settings.learning_rate * step / settings.warmup_steps
    progress = (step - 1 - settings.warmup_steps) / (total_steps - settings.warmup_steps)
    return settings.learning_rate * _share(settings.schedule, progress)


def _share(schedule: str, progress: float) -> float:
    """Share of the full rate after `progress` (0 to 1) of the steps that follow the warm-up."""
    match schedule:
        case "constant":
            return 1.0
        case "linear":
            return 1.0 - progress
        case "cosine":
            return 0.5 * (1.0 + math.cos(math.pi * progress))
    raise ConfigError(f"schedule {schedule!r} is unknown.", "Use constant, linear or cosine.")
