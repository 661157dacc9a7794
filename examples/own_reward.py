"""A reward of one's own: copy a word backwards. Used by own_reward.toml."""

import difflib
import random

from plait.environments import Score

LETTERS = "abcdefghiklmnoprstuvwy"


def question(index: int, seed: int) -> dict[str, str]:
    """The question at `index`; the same for the same arguments. `demonstration` serves the warm start."""
    draw = random.Random(f"{seed}/{index}")
    word = "".join(draw.choices(LETTERS, k=draw.randint(2, 4)))
    return {
        "question": f"Write the letters of {' '.join(word)} backwards.",
        "answer": word[::-1],
        "demonstration": " ".join(word[::-1]),
    }


def reward(example: dict[str, str], answer: str) -> Score:
    """How much of the word is right; the metric `correct` is what counts as accuracy."""
    letters = "".join(answer.lower().split())
    likeness = difflib.SequenceMatcher(None, letters, example["answer"]).ratio()
    return Score(likeness, {"correct": float(letters == example["answer"])})
