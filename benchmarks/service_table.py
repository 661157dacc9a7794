"""Figures as a person reads them."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

COLUMNS = ("measure", "setting", "count", "per s", "median ms", "95th ms", "longest ms", "more")
TEXTS = ("measure", "setting", "more")
OWN_COLUMNS = frozenset(("measure", "setting", "count", "per_s", "median_s", "p95_s", "max_s"))


def print_rows(console: Console, rows: Sequence[Mapping[str, Any]]) -> None:
    table = Table(title="The service", title_justify="left")
    for name in COLUMNS:
        table.add_column(name, justify="left" if name in TEXTS else "right")
    for row in rows:
        times = [_ms(row.get(name)) for name in ("median_s", "p95_s", "max_s")]
        table.add_row(row["measure"], row["setting"], _number(row.get("count")), _number(row.get("per_s")), *times, _more(row))
    console.print(table)


def _ms(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1e3:.1f}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


def _more(row: Mapping[str, Any]) -> str:
    figures = {name: value for name, value in row.items() if name not in OWN_COLUMNS and isinstance(value, int | float)}
    return ", ".join(f"{name} {value:.4g}" for name, value in figures.items())
