"""Figures as a person reads them."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

COLUMNS = (
    "system", "workers", "worker-s/step", "of split", "at least", "slower: mean", "max", "switches", "in setup",
    "lost ms/step", "busy",
)  # fmt: skip
LOST = ("waiting", "setup", "rest")
"""Of what a step takes beyond what it takes alone, in the order of the column."""


def print_rows(console: Console, rows: Sequence[Mapping[str, Any]]) -> None:
    for scenario in dict.fromkeys(row["scenario"] for row in rows):
        table = Table(title=scenario, title_justify="left")
        for name in COLUMNS:
            table.add_column(name, justify="left" if name == "system" else "right")
        for row in (row for row in rows if row["scenario"] == scenario):
            table.add_row(*_cells(row))
        console.print(table)


def _cells(row: Mapping[str, Any]) -> list[str]:
    cells = [
        row["system"], f"{row['workers']}", f"{row['worker_seconds_per_step']:.2f}", f"{row['of_split']:.3f}",
        f"{row['least_of_split']:.3f}", f"{row['mean_slowdown']:.2f}", f"{row['max_slowdown']:.2f}",
    ]  # fmt: skip
    if "switches" not in row:
        return cells + [""] * 4
    busy = " ".join(f"{share:.0%}" for share in row["busy_share"].values())
    lost = " + ".join(f"{1000 * row['lost_s_per_step'][part]:.0f}" for part in LOST)
    return [*cells, f"{row['switches']}", f"{row['setup_share']:.1%}", lost, busy]


def print_bubbles(console: Console, scenario: str, bubbles: Mapping[str, float]) -> None:
    told = ", ".join(f"{job} {share:.0%}" for job, share in bubbles.items())
    console.print(f"{scenario}, each alone on workers of its own: its training worker is idle for {told} of the time")
