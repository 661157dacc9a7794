"""Figures as a person reads them, and as a picture."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.hrrs_headlines import FIFO, SHORTEST, ratios_of
from benchmarks.hrrs_loads import KINDS

Row = Mapping[str, Any]
COLUMNS = ("order", "mean slowdown", "99 %", "max", "of jobs: mean", "max", "wait s", "switches", "in setup", "in service")
PANELS = (
    ("mean slowdown, relative to FIFO", "mean_slowdown", FIFO),
    ("switches, relative to FIFO", "switches", FIFO),
    ("maximum slowdown, relative to shortest-first", "max_slowdown", SHORTEST),
)


def print_rows(console: Console, rows: Sequence[Row]) -> None:
    for load in dict.fromkeys(row["load"] for row in rows):
        table = Table(title=load, title_justify="left")
        for name in COLUMNS:
            table.add_column(name, justify="left" if name == "order" else "right")
        for row in (row for row in rows if row["load"] == load):
            table.add_row(
                row["system"], f"{row['mean_slowdown']:.2f}", f"{row['slowdown_99']:.1f}", f"{row['max_slowdown']:.1f}",
                f"{row['mean_job_slowdown']:.2f}", f"{row['max_job_slowdown']:.2f}", f"{row['mean_wait_s']:.1f}",
                f"{row['switches']}", f"{row['setup_time_share']:.0%}", f"{row['service_time_share']:.0%}",
            )  # fmt: skip
        console.print(table)


def draw_figure(path: Path, rows: Sequence[Row]) -> None:
    """Geometric means over the loads of each kind."""
    from matplotlib.figure import Figure

    systems = list(dict.fromkeys(row["system"] for row in rows))
    figure = Figure(figsize=(15, 3.8), layout="constrained")
    panels = figure.subplots(1, len(PANELS), squeeze=False)[0]
    for panel, (title, name, base) in zip(panels, PANELS, strict=True):
        for place, system in enumerate(systems):
            values = [geometric_mean(ratios_of(rows, system, name, base, kind).values()) for kind in KINDS]
            xs = [at + (place - (len(systems) - 1) / 2) * 0.13 for at in range(len(KINDS))]
            panel.bar(xs, [value - 1 for value in values], 0.13, bottom=1, label=system)
        panel.axhline(1, color="black", linewidth=0.8)
        panel.set(title=title, yscale="log")
        panel.set_xticks(range(len(KINDS)), KINDS)
        panel.set_yticks([0.1, 0.3, 1, 3, 10], ["0.1x", "0.3x", "1x", "3x", "10x"])
        panel.minorticks_off()
        panel.grid(axis="y", alpha=0.3)
    panels[0].legend(fontsize="small")
    figure.savefig(path, dpi=110)
