"""Figures as a person reads them."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

COLUMNS = ("system", "dtype", "tokens/s", "wall s", "CPU s", "of the roofline", "note")


def print_table(console: Console, title: str, rows: Sequence[Mapping[str, Any]]) -> None:
    table = Table(title=title, title_justify="left")
    for name in COLUMNS:
        table.add_column(name, justify="left" if name in ("system", "dtype", "note") else "right")
    for row in rows:
        table.add_row(
            row["system"],
            row["dtype"],
            f"{row['tokens_per_s']:.1f}",
            f"{row['wall_s']:.2f}",
            f"{row['cpu_s']:.2f}",
            f"{row['roofline_share']:.0%}",
            row["note"],
        )
    console.print(table)


def print_headlines(console: Console, headlines: Mapping[str, Mapping[str, Any]]) -> None:
    table = Table(title="Headlines", title_justify="left")
    for name in ("name", "value", "goal", "met", "note"):
        table.add_column(name, justify="right" if name in ("value", "goal") else "left")
    for name, values in headlines.items():
        value = "-" if values["value"] is None else f"{values['value']:.3g} {values['unit']}"
        table.add_row(name, value, f"{values['goal']:g}", "yes" if values["met"] else "no", values["note"])
    console.print(table)
