"""The grid as a person reads it."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

COLUMNS = (
    "tasks", "system", "steps/h", "vs seq.", "end to end s", "first step s", "s/step", "task s/step", "decoding", "idle rollout",
    "idle train", "CPU controller", "rollout", "train", "environments",
)  # fmt: skip


def print_table(console: Console, title: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """One scenario's rows, in order of the number of tasks."""
    table = Table(title=title, title_justify="left")
    for name in COLUMNS:
        table.add_column(name, justify="left" if name == "system" else "right", no_wrap=name == "system")
    sequential = {row["tasks"]: row["steps_per_hour"] for row in rows if row["system"] == "sequential"}
    for index, row in enumerate(rows):
        is_last = index + 1 == len(rows) or rows[index + 1]["tasks"] != row["tasks"]
        table.add_row(*_cells(row, sequential[row["tasks"]]), end_section=is_last)
    console.print(table)


def _cells(row: Mapping[str, Any], sequential: float) -> list[str]:
    cpu_s, idle = row["cpu_s"], row["idle_share"]
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
        f"{idle.get('rollout', idle.get('worker', 1.0)):.0%}",
        f"{idle.get('train', 1.0):.0%}" if "worker" not in idle else "same",
        f"{cpu_s['controller']:.1f} s",
        f"{cpu_s.get('rollout', cpu_s.get('worker', 0.0)):.1f} s",
        f"{cpu_s['train']:.1f} s" if "train" in cpu_s else "same",
        f"{cpu_s['environments']:.1f} s",
    ]
