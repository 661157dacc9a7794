"""Rows for people: aligned columns, cut by nothing, so that they can be piped."""

import time
from collections.abc import Sequence


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]], empty: str) -> None:
    """`empty` is said when there are no rows. Numbers stand to the right."""
    if not rows:
        print(empty)
        return
    texts = [[_text(value) for value in row] for row in rows]
    widths = [max(len(line[index]) for line in [list(columns), *texts]) for index in range(len(columns))]
    is_number = [all(isinstance(row[index], int | float) for row in rows) for index in range(len(columns))]
    for line in [list(columns), *texts]:
        places = zip(line, widths, is_number, strict=True)
        cells = [text.rjust(width) if is_right else text.ljust(width) for text, width, is_right in places]
        print("  ".join(cells).rstrip())


def _text(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.1f}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def when(time_s: float | None) -> str:
    """`2026-01-31 17:05`, local time."""
    return "" if time_s is None else time.strftime("%Y-%m-%d %H:%M", time.localtime(time_s))
