"""Finished episodes and the batches they make."""

import msgspec

from plait.types.policy import PolicyVersion


class Segment(msgspec.Struct, frozen=True):
    """A run of tokens of one origin. Sampled ones carry log-probabilities and the policy they came from."""

    tokens: tuple[int, ...]
    logprobs: tuple[float, ...] = ()
    policy: PolicyVersion | None = None
    stop: str = ""

    @property
    def is_sampled(self) -> bool:
        return self.policy is not None


class Trajectory(msgspec.Struct, frozen=True):
    """One episode: alternating given and sampled segments, and its reward.

    `stop` is why the episode ended: a `StopReason`, or one of the environment's own.
    `metrics` are numbers the environment reports besides the reward.
    """

    environment: str
    example_id: str
    group_index: int
    sample_index: int
    segments: tuple[Segment, ...]
    reward: float
    stop: str
    metrics: dict[str, float] = {}

    @property
    def tokens(self) -> tuple[int, ...]:
        return tuple(token for segment in self.segments for token in segment.tokens)

    @property
    def num_sampled_tokens(self) -> int:
        return sum(len(segment.tokens) for segment in self.segments if segment.is_sampled)


class TrajectoryBatch(msgspec.Struct, frozen=True):
    """All trajectories of one step of one task, ordered by (group, sample)."""

    tenant: str
    task: str
    step: int
    trajectories: tuple[Trajectory, ...]
    num_dropped_groups: int = 0
    """Groups given up because their environment failed; never scored as zero."""
