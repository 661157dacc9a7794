"""Trajectories as people read them."""

from plait.models.tokenizer import Tokenizer
from plait.state.samples import SampleRecord
from plait.types.trajectory import Trajectory


def sample_record(tokenizer: Tokenizer, task: str, step: int, trajectory: Trajectory) -> SampleRecord:
    prompt, *rest = trajectory.segments
    return SampleRecord(
        task=task,
        step=step,
        trajectory=trajectory,
        prompt_text=tokenizer.decode(prompt.tokens),
        answer_texts=tuple(tokenizer.decode(s.tokens) for s in rest if s.is_sampled),
        feedback_texts=tuple(tokenizer.decode(s.tokens) for s in rest if not s.is_sampled),
    )
