"""What a finished batch says about itself, before it is trained."""

import math
from collections import Counter

from plait.observe.events import StepCommitted
from plait.types.trajectory import TrajectoryBatch


def mean_and_deviation(values: list[float]) -> tuple[float | None, float | None]:
    """Mean and population standard deviation; None of nothing. A value that is not finite is no measurement and is left out."""
    known = [value for value in values if math.isfinite(value)]
    if not known:
        return None, None
    mean = math.fsum(known) / len(known)
    return mean, math.sqrt(math.fsum((value - mean) ** 2 for value in known) / len(known))


def batch_event(batch: TrajectoryBatch, time_s: float) -> StepCommitted:
    """The part of the step's event that the rollout knows; later stages fill in the rest."""
    mean, deviation = mean_and_deviation([t.reward for t in batch.trajectories])
    return StepCommitted(
        time_s=time_s,
        task=batch.task,
        step=batch.step,
        adapter_digest="",
        loss=0.0,
        grad_norm=0.0,
        learning_rate=0.0,
        reward_mean=mean,
        reward_std=deviation,
        num_sequences=len(batch.trajectories),
        num_trained_tokens=0,
        num_sampled_tokens=sum(t.num_sampled_tokens for t in batch.trajectories),
        num_dropped_groups=batch.num_dropped_groups,
        stop_counts=dict(sorted(Counter(t.stop for t in batch.trajectories).items())),
        environment_metrics=_metric_means(batch),
    )


def _metric_means(batch: TrajectoryBatch) -> dict[str, float]:
    """Each over the trajectories that report it."""
    values: dict[str, list[float]] = {}
    for trajectory in batch.trajectories:
        for name, value in trajectory.metrics.items():
            values.setdefault(name, []).append(value)
    means = {name: mean_and_deviation(values[name])[0] for name in sorted(values)}
    return {name: mean for name, mean in means.items() if mean is not None}
