r"""Exact numbers out of mathematical notation, without evaluating code.

Understands integers, decimals, thousands separators, fractions (a/b, \frac{a}{b}), powers with integer exponents,
scientific notation and percent signs. Everything else is None, for a computer algebra system to look at.
"""

import re
from fractions import Fraction

import msgspec

MAX_EXPONENT = 4096
"""Larger powers are left alone: their exact value would not fit anywhere."""
SAME_DIGITS = 6
"""A decimal with so many significant digits may stand for a value that has no finite decimal form."""

_INTEGER = r"(?:\d{1,3}(?:,\d{3})+|\d+)"
_DECIMAL = rf"(?:{_INTEGER}(?:\.\d*)?|\.\d+)"
_PATTERNS = {
    "decimal": re.compile(rf"({_DECIMAL})"),
    "fraction": re.compile(rf"\\frac\{{(-?{_DECIMAL})\}}\{{(-?{_DECIMAL})\}}|({_DECIMAL})/({_DECIMAL})"),
    "mixed": re.compile(r"(\d+)\\frac\{(\d+)\}\{(\d+)\}"),
    "power": re.compile(rf"({_DECIMAL})\^(?:\{{(-?\d+)\}}|(\d+))"),
    "scientific": re.compile(rf"({_DECIMAL})(?:\\times|\\cdot|\*)10\^(?:\{{(-?\d+)\}}|(\d+))|({_DECIMAL})[eE]([+-]?\d+)"),
}


class Number(msgspec.Struct, frozen=True):
    value: Fraction
    is_percent: bool = False
    """`value` is what stands before the percent sign."""
    significant_digits: int | None = None
    """Of a number written as a decimal; None for one that is exact."""


def parse_number(text: str) -> Number | None:
    compact = re.sub(r"\s+", "", text)
    is_percent = compact.endswith("%")
    compact = compact.removesuffix("%").removesuffix("\\")
    negative = compact.startswith("-")
    value = _unsigned(compact.removeprefix("-").removeprefix("+"))
    if value is None:
        return None
    digits = len(re.sub(r"\D", "", compact).lstrip("0")) if "." in compact else None
    return Number(-value if negative else value, is_percent, digits)


def same_number(gold: Number, answer: Number) -> bool:
    """A percentage equals its fraction and, where the gold is one or is too large for a fraction, the bare number."""
    if _close(gold, answer, gold.value, answer.value):
        return gold.is_percent == answer.is_percent or gold.is_percent or abs(gold.value) > 1
    if gold.is_percent != answer.is_percent:
        scaled = [number.value / 100 if number.is_percent else number.value for number in (gold, answer)]
        return _close(gold, answer, *scaled)
    return False


def _close(gold: Number, answer: Number, gold_value: Fraction, answer_value: Fraction) -> bool:
    if gold_value == answer_value:
        return True
    digits = max(gold.significant_digits or 0, answer.significant_digits or 0)
    exact = gold.significant_digits is None or answer.significant_digits is None
    return exact and digits >= SAME_DIGITS and abs(gold_value - answer_value) <= abs(gold_value) * 5 / 10**SAME_DIGITS


def _unsigned(text: str) -> Fraction | None:
    for kind, pattern in _PATTERNS.items():
        if match := pattern.fullmatch(text):
            return _value(kind, [group.replace(",", "") for group in match.groups() if group is not None])
    return None


def _value(kind: str, groups: list[str]) -> Fraction | None:
    if kind in ("power", "scientific") and abs(int(groups[1])) > MAX_EXPONENT:
        return None
    numbers = [Fraction(group) for group in groups]
    try:
        match kind:
            case "fraction":
                return numbers[0] / numbers[1]
            case "mixed":
                return numbers[0] + numbers[1] / numbers[2]
            case "power":
                return numbers[0] ** int(groups[1])
            case "scientific":
                return numbers[0] * Fraction(10) ** int(groups[1])
    except ZeroDivisionError:
        return None
    return numbers[0]
