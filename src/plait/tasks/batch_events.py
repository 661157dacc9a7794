"""What a finished batch says about itself, before it is trained."""

import math
from collections import Counter

from plait.observe.events import StepCommitted
from plait.types.trajectory import TrajectoryBatch


def mean_and_deviation(values: list[float]) -> tuple[float | None, float | None]:
    """Mean and population standard deviation; None of nothing."""
    if not values:
        return None, None
    mean = math.fsum(values) / len(values)
    return mean, math.sqrt(math.fsum((v - mean) ** 2 for v in values) / len(values))


def batch_event(batch: TrajectoryBatch, time_s: float, **known: float | int | None) -> StepCommitted:
    """The part of the step's event that the rollout knows; the trainer fills in the rest."""
    mean, deviation = mean_and_deviation([t.reward for t in batch.trajectories])
    return StepCommitted(
        time_s=time_s, task=batch.task, step=batch.step, adapter_digest="", loss=0.0, grad_norm=0.0, learning_rate=0.0,
        reward_mean=mean, reward_std=deviation, num_sequences=len(batch.trajectories), num_dropped_groups=batch.num_dropped_groups,
        stop_counts=dict(sorted(Counter(t.stop for t in batch.trajectories).items())), environment_metrics=_metric_means(batch),
        **known,
    )  # fmt: skip


def _metric_means(batch: TrajectoryBatch) -> dict[str, float]:
    values: dict[str, list[float]] = {}
    for trajectory in batch.trajectories:
        for name, value in trajectory.metrics.items():
            values.setdefault(name, []).append(value)
    return {name: math.fsum(v) / len(v) for name, v in sorted(values.items())}
