r"""Is a mathematical answer right? Three layers: the same string, the same exact number, the same to math-verify.

- The answer is what the last complete \boxed{...} holds, else what follows the last "####", else what math-verify finds.
- An answer that cannot be read is UNPARSABLE, apart from WRONG; a gold answer that cannot be read is an error (`read_gold`).
- A verdict of one of the first two layers is final where it is exact: math-verify rounds, and calls 2^-98 and 2^-99 equal.
- Nothing here sets a timer. math-verify's own uses signals, which fail outside the main thread; the caller's process is
  what gets killed when an expression takes for ever.
"""

import logging
import re
from enum import StrEnum
from functools import lru_cache
from typing import Any

from plait.rewards.answers import boxed, last_number
from plait.rewards.notation import has_balanced_brackets, normalise, plain_text, split_assignment
from plait.rewards.numbers import parse_number, same_number

MAX_ANSWER_CHARACTERS = 2000
"""No real answer is longer; parsing takes time that grows fast."""
MAX_BARE_CHARACTERS = 40
"""Of a text that is read as one expression although nothing marks it as an answer."""
RELATIVE_TOLERANCE = 1e-6
"""Of two numbers that math-verify calls equal."""


class Verdict(StrEnum):
    CORRECT = "correct"
    WRONG = "wrong"
    UNPARSABLE = "unparsable"


def read_gold(text: str) -> str:
    """Return the gold answer in one spelling; raise ValueError if it cannot be read as mathematics or a word."""
    gold = normalise(text)
    if not gold or not has_balanced_brackets(gold):
        raise ValueError(f"the gold answer {text!r} cannot be read")
    if parse_number(gold) is None and not _parse_expression(gold) and not plain_text(gold).isalnum():
        raise ValueError(f"the gold answer {text!r} cannot be read")
    return gold


def check_math(gold: str, text: str) -> Verdict:
    """Compare what a policy wrote with a gold answer from `read_gold`."""
    answer = find_answer(text)
    if answer is None:
        return _check_free_text(gold, text)
    return compare(gold, normalise(answer))


def find_answer(text: str) -> str | None:
    """The marked answer of a text, or the whole text where it is nothing but an expression."""
    if (answer := boxed(text)) is not None:
        return answer
    if "####" in text:
        return text.rsplit("####", 1)[1].strip().split("\n")[0] or None
    return text.strip() if _is_expression(normalise(text)) else None


def _is_expression(text: str) -> bool:
    if parse_number(text) is not None:
        return True
    words = {word for word in re.findall(r"[a-zA-Z]+", text) if len(word) > 1}
    return 0 < len(text) < MAX_BARE_CHARACTERS and words <= _COMMANDS


_COMMANDS = {"pi", "infty", "frac", "sqrt", "cdot", "times", "cup", "cap"}


def compare(gold: str, answer: str) -> Verdict:
    """Compare two expressions in the spelling of `normalise`."""
    gold_name, gold_value = split_assignment(gold)
    answer_name, answer_value = split_assignment(answer)
    if not (gold_name and answer_name and gold_name != answer_name):
        gold, answer = gold_value, answer_value
    if gold.replace(" ", "") == answer.replace(" ", "") or plain_text(gold) == plain_text(answer) != "":
        return Verdict.CORRECT
    if not has_balanced_brackets(answer) or len(answer) > MAX_ANSWER_CHARACTERS:
        return Verdict.UNPARSABLE
    gold_number, answer_number = parse_number(gold), parse_number(answer)
    if gold_number is not None and answer_number is not None:
        return Verdict.CORRECT if same_number(gold_number, answer_number) else Verdict.WRONG
    return _compare_expressions(_parse_expression(gold), _parse_expression(answer))


def _check_free_text(gold: str, text: str) -> Verdict:
    """A text without a marked answer: what math-verify finds in it, or its last number where the gold is one."""
    number = last_number(text[-MAX_ANSWER_CHARACTERS:])
    if parse_number(gold) is not None and number is not None:
        return compare(gold, number)
    return _compare_expressions(_parse_expression(gold), _parse(text[-MAX_ANSWER_CHARACTERS:]))


def _compare_expressions(gold: tuple[Any, ...], answer: tuple[Any, ...]) -> Verdict:
    if not answer or not gold:
        return Verdict.UNPARSABLE
    equal = _math_verify().verify(list(gold), list(answer), timeout_seconds=None, raise_on_error=False)
    return Verdict.CORRECT if equal and not _differ_numerically(gold[0], answer[0]) else Verdict.WRONG


def _parse_expression(text: str) -> tuple[Any, ...]:
    if len(text) > MAX_ANSWER_CHARACTERS or not has_balanced_brackets(text):
        return ()
    return _parse(f"\\boxed{{{text}}}")


def _parse(text: str) -> tuple[Any, ...]:
    """math-verify's reading: a sympy object and its text; empty if there is only text."""
    found = _math_verify().parse(text, parsing_timeout=None, raise_on_error=False)
    return tuple(found) if any(not isinstance(item, str) for item in found) else ()


def _differ_numerically(first: Any, second: Any) -> bool:
    """Two numbers that are equal only after rounding to so many decimals. Percentages are left to math-verify."""
    if not all(
        getattr(value, "is_number", False) and "%" not in str(value) and "1/100" not in str(value) for value in (first, second)
    ):
        return False
    left, right = complex(first), complex(second)
    return abs(left - right) > RELATIVE_TOLERANCE * max(abs(left), abs(right))


@lru_cache(maxsize=1)
def _math_verify() -> Any:
    """Loaded at first use (it takes most of a second). It warns once of each absent timer, which is as it should be."""
    import math_verify

    for name in ("math_verify.parser", "math_verify.grader", "math_verify.utils"):
        logging.getLogger(name).setLevel(logging.ERROR)
    return math_verify


def warm_up() -> None:
    """Load what the first check would load."""
    check_math("\\pi", "$\\pi + 0$")
