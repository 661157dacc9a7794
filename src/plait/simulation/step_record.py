"""What is told of a training step of a simulated task."""

import msgspec


class StepRecord(msgspec.Struct, frozen=True):
    """A step that is committed. Times of the simulation."""

    task: str
    step: int
    start_s: float
    tail_start_s: float
    """Nine tenths of its episodes had ended."""
    ready_s: float
    """The last of them had."""
    train_start_s: float
    """Its first slice began."""
    end_s: float
    num_tokens: int
    """That it was trained on, prompts too."""
    num_sampled_tokens: int
