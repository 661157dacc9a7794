"""A scenario's paper beside the simulation: a table, and what the paper leaves open."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from plait.simulation.results import ScenarioResult


def print_paper(console: "Console", result: "ScenarioResult") -> None:
    """Nothing where the scenario is after no paper."""
    from rich import box
    from rich.table import Table

    if result.paper:
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for name in ("", "paper", "simulated", "difference"):
            table.add_column(name, justify="right" if name else "left")
        for row in result.paper:
            ours = "-" if row.ours is None else f"{row.ours:.3g}"
            difference = "-" if row.difference is None else f"{100 * row.difference:+.0f} %"
            table.add_row(row.what, row.paper_text, ours, difference)
        console.print(table)
    if result.assumptions:
        console.print("Assumed, where the paper leaves it open:", markup=False)
        for text in result.assumptions:
            console.print(f"- {text}", markup=False)
