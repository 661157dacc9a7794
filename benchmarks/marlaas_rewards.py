"""Questions and rewards that an untrained model of a hundred thousand parameters can already score on, in part."""

from collections.abc import Callable
from typing import Any

WORDS = ("amber", "brook", "cedar", "delta", "ember", "fjord", "grove", "heath", "inlet", "jetty", "knoll", "lagoon")


def examples(index: int, seed: int) -> dict[str, Any]:
    """A short question, another for each index."""
    first, second = WORDS[(index + seed) % len(WORDS)], WORDS[(index // len(WORDS) + 5 * seed) % len(WORDS)]
    return {"question": f"{index}: tell me about {first} and {second}."}


def _share(answer: str, is_wanted: Callable[[str], bool]) -> float:
    return sum(map(is_wanted, answer)) / max(1, len(answer))


def digit_share(example: dict[str, Any], answer: str) -> float:
    return _share(answer, str.isdigit)


def vowel_share(example: dict[str, Any], answer: str) -> float:
    return _share(answer, lambda character: character in "aeiou")


def space_share(example: dict[str, Any], answer: str) -> float:
    return _share(answer, str.isspace)


def upper_share(example: dict[str, Any], answer: str) -> float:
    return _share(answer, str.isupper)


def variety(example: dict[str, Any], answer: str) -> float:
    """How many of the characters are different ones."""
    return len(set(answer)) / max(1, len(answer))
