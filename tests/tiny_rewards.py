"""Questions and rewards for tests; loaded by environment processes, not by pytest."""

import os
import time
from typing import Any


def question(index: int, seed: int) -> dict[str, Any]:
    return {"question": f"question {seed}-{index}"}


def count_e(example: dict[str, Any], answer: str) -> float:
    """Varied for random text, so that groups have a gradient."""
    return (len(answer) % 5) / 4


def constant(example: dict[str, Any], answer: str) -> float:
    return 0.5


def slow(example: dict[str, Any], answer: str) -> float:
    time.sleep(0.2)
    return count_e(example, answer)


def raises(example: dict[str, Any], answer: str) -> float:
    raise RuntimeError("the verifier is broken")


def raises_sometimes(example: dict[str, Any], answer: str) -> float:
    if example["question"].endswith(("1", "3", "5")):
        raise RuntimeError("the verifier is broken for odd questions")
    return count_e(example, answer)


def dies(example: dict[str, Any], answer: str) -> float:
    os._exit(3)
