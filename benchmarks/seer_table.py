"""Figures as a person reads them, and the ablation as a picture."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

Row = Mapping[str, Any]
COLUMNS = (
    "cache", "system", "tokens/s", "", "completion s", "last tenth s", "idle", "CPU s", "preempted", "prefilled", "moves",
    "accepted", "tokens a step", "same",
)  # fmt: skip


def print_rows(console: Console, rows: Sequence[Row]) -> None:
    for case in dict.fromkeys((row["case"], row["engines"]) for row in rows):
        table = Table(title=f"{case[0]}, {case[1]} engines", title_justify="left")
        for name in COLUMNS:
            table.add_column(name, justify="left" if name in ("system", "same") else "right")
        for row in (row for row in rows if (row["case"], row["engines"]) == case):
            table.add_row(*_cells(row, _base(rows, row)))
        console.print(table)


def _base(rows: Sequence[Row], row: Row) -> Row:
    """The first system of its setting."""
    keys = ("case", "engines", "cache_share")
    return next(other for other in rows if all(other[key] == row[key] for key in keys))


def _cells(row: Row, base: Row) -> list[str]:
    accepted = f"{row['accepted'] / row['proposed']:.0%}" if row["proposed"] else ""
    return [
        f"{row['cache_share']:.0%}", row["system"], f"{row['tokens_per_s']:.0f}",
        f"{row['tokens_per_s'] / base['tokens_per_s']:.2f}x", f"{row['completion_s']:.2f}", f"{row['last_tenth_s']:.2f}",
        f"{row['idle_share']:.0%}", f"{row['cpu_s']:.1f}", f"{row['preemptions']:.0f}", f"{row['prefilled_tokens']:.0f}",
        f"{row['moves']:.0f}", accepted, f"{row['tokens_per_row_step']:.2f}", "yes" if row["same_outputs"] else "NO",
    ]  # fmt: skip


def print_tenants(console: Console, rows: Sequence[Row]) -> None:
    if not rows:
        return
    table = Table(title="Four tenants at once", title_justify="left")
    for name in ("fairness", "tenant", "requests", "alone s", "together s", "slowdown", "tokens/s of all"):
        table.add_column(name, justify="left" if name in ("fairness", "tenant") else "right")
    for row in rows:
        table.add_row(
            "on" if row["fair"] else "off", row["tenant"], str(row["requests"]), f"{row['alone_s']:.2f}",
            f"{row['together_s']:.2f}", f"{row['slowdown']:.2f}x", f"{row['tokens_per_s']:.0f}",
        )  # fmt: skip
    console.print(table)


def draw_figure(path: Path, rows: Sequence[Row]) -> None:
    """Throughput relative to pinned groups, one panel a case."""
    from matplotlib.figure import Figure

    cases = list(dict.fromkeys((row["case"], row["engines"]) for row in rows))
    figure = Figure(figsize=(4.2 * len(cases), 3.6), layout="constrained")
    panels = figure.subplots(1, len(cases), sharey=True, squeeze=False)[0]
    for panel, case in zip(panels, cases, strict=True):
        mine = [row for row in rows if (row["case"], row["engines"]) == case]
        for system in dict.fromkeys(row["system"] for row in mine):
            points = [
                (row["cache_share"], row["tokens_per_s"] / _base(rows, row)["tokens_per_s"])
                for row in mine
                if row["system"] == system
            ]
            panel.plot(*zip(*points, strict=True), marker="o", label=system)
        panel.set(title=f"{case[0]}, {case[1]} engines", xlabel="cache, share of the peak need", xscale="log")
        shares = list(dict.fromkeys(row["cache_share"] for row in mine))
        panel.set_xticks(shares, [f"{share:.0%}" for share in shares], minor=False)
        panel.minorticks_off()
        panel.grid(alpha=0.3)
    panels[0].set_ylabel("tokens/s, relative to pinned groups")
    panels[-1].legend(fontsize="small")
    figure.savefig(path, dpi=110)
