"""The tables of a part, in a terminal."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.simulation_found import Found

COLUMNS = {
    "paper": ("what", "low", "high", "ours", "difference"),
    "sensitivity": ("assumption", "value"),
    "grid": ("model", "tasks", "system", "steps_per_hour", "makespan_s", "first_step_s", "utilisation"),
    "strands": ("sharing", "seer", "multiplexing", "device_hours_per_step", "gain"),
    "speed": ("case", "system", "days", "events", "clock_events", "seconds", "events_per_s", "days_per_minute", "grown_bytes"),
    "validation": ("case", "system", "figure", "measured", "simulated", "difference"),
}


def print_part(console: Console, name: str, found: Found) -> None:
    for kind, columns in COLUMNS.items():
        if rows := found.of(kind):
            console.print(_table(f"{name}: {kind}", columns, rows))
    for row in found.of("assumption"):
        console.print(f"- {row['text']}", markup=False)


def _table(title: str, columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(title=title, title_justify="left")
    for column in columns:
        table.add_column(column)
    for row in rows:
        table.add_row(*(_text(row.get(column)) for column in columns))
    return table


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
    return "-" if value is None else "yes" if value is True else "no" if value is False else str(value)
