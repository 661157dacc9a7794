"""Questions and a reward of one's own: sums up to 40."""

import random
import re
from typing import Any


def question(index: int, seed: int) -> dict[str, Any]:
    chance = random.Random(f"{seed}-{index}")
    left, right = chance.randint(1, 20), chance.randint(1, 20)
    return {"question": f"What is {left} + {right}?", "answer": left + right}


def reward(example: dict[str, Any], answer: str) -> float:
    """1 if the last number of the answer is the sum."""
    numbers = re.findall(r"\d+", answer)
    return float(bool(numbers) and int(numbers[-1]) == example["answer"])
