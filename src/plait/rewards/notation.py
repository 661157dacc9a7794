r"""Mathematical notation in one spelling, so that equal answers become equal strings more often.

Only what never changes a value is rewritten: spacing, sizes of brackets, units after a number, ASCII for LaTeX commands.
"""

import re

from plait.rewards.answers import closing_position

_SPELLINGS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"\\\(|\\\)|\\\[|\\\]|\$", ""),
        (r"\\left(?![a-zA-Z])|\\right(?![a-zA-Z])|\\!|\\,|\\;|\\:|\\ |~", ""),
        (r"\\[dt]frac(?![a-zA-Z])", r"\\frac"),
        (r"\{,\}", ","),
        ("−", "-"),
        ("π", r"\\pi "),
        ("∞", r"\\infty "),
        ("×", r"\\times "),
        (r"\^\s*\{?\s*\\circ\s*\}?|°|\\degree", ""),
        (r"\\\{", r"\\{"),
        (r"(?<![\\a-zA-Z])(pi|infty)(?![a-zA-Z])", r"\\\1 "),
        (r"\\cdot(?![a-zA-Z])|(?<!\*)\*(?!\*)", r"\\cdot "),
        (r"\*\*", "^"),
    )
)
_SHORT_FRACTION = re.compile(r"\\frac\s*(\d)\s*(\d)")
_SHORT_ROOT = re.compile(r"\\sqrt\s*(\d|[a-z])(?![\w])")
_TRAILING_UNIT = re.compile(
    r"(?<=[\d}])\s*(?:\\(?:text|mathrm|mbox|textrm)\{[^{}]*\}(?:\^\{?\d\}?)?|(?:\s|\\ )[a-zA-Z]{2,}[a-zA-Z ]*\.?)$"
)
_WHOLE_TEXT = re.compile(r"\\(?:text|mathrm|mbox|textrm|textbf|mathbf)\{([^{}]*)\}")
_CURRENCY = re.compile(r"^(-?)\s*(?:\\?\$|€|£)\s*(?=[\d.])")


def normalise(text: str) -> str:
    r"""One spelling of an expression: r"\dfrac12\text{ cm}" -> r"\frac{1}{2}"."""
    text = _CURRENCY.sub(r"\1", text.strip().rstrip("."))
    for pattern, replacement in _SPELLINGS:
        text = pattern.sub(replacement, text)
    text = _SHORT_FRACTION.sub(r"\\frac{\1}{\2}", text)
    text = _SHORT_ROOT.sub(r"\\sqrt{\1}", _braced_roots(text))
    text = _TRAILING_UNIT.sub("", text.strip()) or text
    return re.sub(r"\s+", " ", text).strip()


def plain_text(text: str) -> str:
    r"""For answers that are words: r"\text{(A)}" and "a" are the same."""
    return _WHOLE_TEXT.sub(r"\1", text).strip().strip("().").strip().casefold()


def split_assignment(text: str) -> tuple[str, str]:
    """Split "x = 5" into ("x", "5"); the name is empty for anything but one variable and one equals sign."""
    name, equals, value = text.partition("=")
    if equals and "=" not in value and re.fullmatch(r"\s*[a-zA-Z]\s*", name):
        return name.strip(), value.strip()
    return "", text


def has_balanced_brackets(text: str) -> bool:
    """Braces, which LaTeX needs in pairs; round and square brackets may differ, as in half-open intervals."""
    depth = 0
    for character in re.sub(r"\\.", "", text):
        depth += (character == "{") - (character == "}")
        if depth < 0:
            return False
    return depth == 0


def _braced_roots(text: str) -> str:
    r"""sqrt(x) -> \sqrt{x}."""
    while match := re.search(r"(?<![\\a-zA-Z])sqrt\(", text):
        end = closing_position(text, match.end(), "(", ")")
        if end is None:
            return text
        text = f"{text[: match.start()]}\\sqrt{{{text[match.end() : end]}}}{text[end + 1 :]}"
    return text
