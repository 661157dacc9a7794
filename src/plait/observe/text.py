"""Small pieces of text for terminals: safe, short, without colour."""

import time
from collections.abc import Sequence

_BARS = "▁▂▃▄▅▆▇█"
_BIDIRECTIONAL = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def printable(text: str) -> str:
    """`text` with control characters made visible, so that a model's answer or an error cannot steer the terminal."""
    return "".join(_visible(character) for character in text)


def _visible(character: str) -> str:
    code = ord(character)
    if character in "\n\t":
        return character
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "\u2421"
    if 0x80 <= code < 0xA0 or 0xD800 <= code < 0xE000 or character in _BIDIRECTIONAL:
        return f"<{code:04x}>"
    return character


def local_time(time_s: float, form: str) -> str:
    """In the form of `strftime`; "?" for a time that no calendar has, as a damaged log may give."""
    try:
        return time.strftime(form, time.localtime(time_s))
    except (OverflowError, OSError, ValueError):
        return "?"


def one_line(text: str, max_characters: int) -> str:
    """The text on one line, cut with an ellipsis."""
    flat = " ".join(printable(text).split())
    return flat if len(flat) <= max_characters else flat[: max_characters - 1] + "…"


def last_line(text: str) -> str:
    """What a traceback ends with, which says the most."""
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip() if lines else ""


def sparkline(values: Sequence[float], width: int = 10) -> str:
    """The last `width` values as bars between their smallest and largest."""
    recent = values[-width:]
    if not recent:
        return ""
    low, high = min(recent), max(recent)
    if high <= low:
        return _BARS[3] * len(recent)
    return "".join(_BARS[round((value - low) / (high - low) * (len(_BARS) - 1))] for value in recent)


def bar(share: float, width: int = 10) -> str:
    """A share in [0, 1] as a bar of `width` characters."""
    filled = round(min(max(share, 0.0), 1.0) * width)
    return "█" * filled + "░" * (width - filled)


def duration(seconds: float) -> str:
    """`8.2 s`, `3 min 20 s`, `2 h 05 min`, `3 d 4 h`."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"


def percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.0f} %"


def model_name(model: str) -> str:
    """A hub id or catalogue name as it is; of a local path its last part."""
    return model.rstrip("/").rpartition("/")[2] if model.startswith(("/", "./", "../", "~")) else model
