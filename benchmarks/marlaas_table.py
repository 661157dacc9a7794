"""The grid as a person reads it."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

COLUMNS = (
    "tasks", "system", "steps/h", "vs sequential", "end to end s", "first step s", "s/step", "task s/step", "decoding", "idle", "CPU s",
)  # fmt: skip


def print_table(console: Console, title: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """One scenario's rows, in order of the number of tasks."""
    table = Table(title=title, title_justify="left")
    for name in COLUMNS:
        table.add_column(name, justify="left" if name in ("system", "idle", "CPU s") else "right")
    sequential = {row["tasks"]: row["steps_per_hour"] for row in rows if row["system"] == "sequential"}
    for index, row in enumerate(rows):
        is_last = index + 1 == len(rows) or rows[index + 1]["tasks"] != row["tasks"]
        table.add_row(*_cells(row, sequential[row["tasks"]]), end_section=is_last)
    console.print(table)


def _cells(row: Mapping[str, Any], sequential: float) -> list[str]:
    return [
        str(row["tasks"]),
        row["system"],
        f"{row['steps_per_hour']:.0f}",
        f"{row['steps_per_hour'] / sequential:.2f}x",
        f"{row['end_to_end_s']:.1f}",
        f"{row['time_to_first_step_s']:.2f}",
        f"{row['time_per_step_s']:.2f}",
        f"{row['task_time_per_step_s']:.2f}",
        f"{row['rollout_utilisation']:.0%}",
        " ".join(f"{name} {share:.0%}" for name, share in sorted(row["idle_share"].items())),
        " ".join(f"{name} {spent_s:.1f}" for name, spent_s in sorted(row["cpu_s"].items())),
    ]
