"""Cutting the answer out of what a policy wrote. Each extractor returns None when there is no answer in its form."""

import re
from collections.abc import Callable

# A minus sign right after a digit, letter or closing bracket is an operator, not part of the number.
_NUMBER = re.compile(r"(?:(?<![\w)\]])[-−])?(?:(?<![\d.])\d{1,3}(?:,\d{3})+(?![\d])|\d+)(?:\.\d+)?")
_BOX = re.compile(r"\\(?:boxed|fbox)\s*\{")
_CALL = re.compile(r"\bcalc\s*\(")


def last_number(text: str) -> str | None:
    """The last number, without thousands separators: "so 1,234 + 1 = 1,235." -> "1235"."""
    numbers = _NUMBER.findall(text)
    return numbers[-1].replace(",", "").replace("−", "-") if numbers else None


def whole(text: str) -> str | None:
    """All of it, without the white space around it."""
    return text.strip() or None


def tag(text: str, name: str = "answer") -> str | None:
    """What the last <answer> and </answer> enclose."""
    found = re.findall(rf"<{name}>((?:(?!<{name}>).)*?)</{name}>", text, re.DOTALL)
    return whole(found[-1]) if found else None


def boxed(text: str) -> str | None:
    r"""What the last complete \boxed{...} encloses, with nested braces."""
    for start in reversed([match.end() for match in _BOX.finditer(text)]):
        end = closing_position(text, start, "{", "}")
        if end is not None:
            return whole(text[start:end])
    return None


def calculator_call(text: str) -> str | None:
    """What the first calc(...) encloses, with nested brackets."""
    match = _CALL.search(text)
    end = closing_position(text, match.end(), "(", ")") if match else None
    return whole(text[match.end() : end]) if match and end is not None else None


def closing_position(text: str, start: int, opening: str, closing: str) -> int | None:
    """Where the bracket opened just before `start` is closed; None if it never is. A backslash hides the next character."""
    depth, position = 1, start
    while position < len(text):
        if text[position] == "\\":
            position += 1
        elif text[position] in (opening, closing):
            depth += 1 if text[position] == opening else -1
            if depth == 0:
                return position
        position += 1
    return None


EXTRACTORS: dict[str, Callable[[str], str | None]] = {"last_number": last_number, "whole": whole, "tag": tag, "boxed": boxed}
