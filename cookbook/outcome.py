"""What a recipe left in its metrics.jsonl, and what is expected of it."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

Rows = Sequence[dict[str, Any]]
Expectation = Callable[[Rows], str | None]
"""None if the rows are as expected; else what is wrong."""


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Rows so far; a last line that is still being written is left out."""
    if not path.exists():
        return []
    text = path.read_text(encoding="utf-8")
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]


def done_steps(rows: Rows, step_metric: str) -> list[int]:
    """Steps after which the optimizer reported `step_metric`, in the order in which they were done."""
    return [row["step"] for row in rows if step_metric in row]


def between(metric: str, low: float, high: float) -> Expectation:
    """Every value of `metric` lies there; and there is one."""

    def check(rows: Rows) -> str | None:
        wrong = [value for value in _values(rows, metric) if not low <= value <= high]
        return f"{metric} is {wrong[0]:.4g}, not between {low:g} and {high:g}" if wrong else _missing(rows, metric)

    return check


def some_above(metric: str, low: float) -> Expectation:
    def check(rows: Rows) -> str | None:
        values = _values(rows, metric)
        return None if any(value > low for value in values) else f"no {metric} is above {low:g}: {values}"

    return check


def repeats(metric: str) -> Expectation:
    """A step that was done again after a resume came to the same, bit for bit; and there is one."""

    def check(rows: Rows) -> str | None:
        seen: dict[int, float] = {}
        twice = [(seen.setdefault(row["step"], row[metric]), row[metric]) for row in rows if metric in row]
        if len(twice) == len(seen):
            return "no step was done twice: the resume was not tried"
        wrong = [(before, now) for before, now in twice if before != now]
        return f"{metric} of a step that was done again is {wrong[0][1]!r}, was {wrong[0][0]!r}" if wrong else None

    return check


def rises(metric: str, by: float) -> Expectation:
    """From the mean of the first third to the mean of the last third of its values; a negative `by`: falls."""

    def check(rows: Rows) -> str | None:
        values = _values(rows, metric)
        if len(values) < 2:
            return f"{metric} was measured {len(values)} times, which shows no change"
        third = max(1, len(values) // 3)
        change = (sum(values[-third:]) - sum(values[:third])) / third
        enough = change >= by if by >= 0 else change <= by
        return None if enough else f"{metric} changed by {change:+.4g}, expected {by:+g}"

    return check


def falls(metric: str, by: float) -> Expectation:
    return rises(metric, -by)


def last_metrics(rows: Rows, names: Sequence[str]) -> dict[str, float]:
    """The last value of each that there is."""
    return {name: values[-1] for name in names if (values := _values(rows, name))}


def _missing(rows: Rows, metric: str) -> str | None:
    return None if _values(rows, metric) else f"there is no metric {metric}"


def _values(rows: Rows, metric: str) -> list[float]:
    return [row[metric] for row in rows if metric in row]
