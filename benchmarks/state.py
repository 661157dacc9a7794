"""The state manager: speed of moves between tiers, what sharing saves, and how long switches take.

    python -m benchmarks.state [--quick] [--json FILE] [--folder FOLDER]

SmolLM2 in bfloat16 if it is installed, else random weights of its shape. The parts are in `state_moves`, `state_sharing` and
`state_switch`. The disk tier is in FOLDER, so that is the disk that is measured.
"""

import argparse
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks import state_resharding
from benchmarks.common import headline, write_json
from benchmarks.state_model import base_model
from benchmarks.state_moves import move_headlines, moves
from benchmarks.state_sharing import sharing, sharing_headlines
from benchmarks.state_switch import switch_headlines, switches

NUM_ROUNDS = 5
OURS = ("slices", "weight sync")
"""Of the systems that reshard."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="two random layers, two rounds")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()), help="where the disk tier is")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="plait-state-", dir=arguments.folder) as folder:
        rows, headlines = run(Path(folder), arguments.quick)
    console = Console()
    console.print(_table(rows))
    for name, values in headlines.items():
        console.print(f"{name}: {values}")
    if arguments.json:
        write_json(arguments.json, rows, headlines)


def run(folder: Path, is_quick: bool) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Rows and headlines of all parts."""
    model, config, weights = base_model(is_quick)
    num_rounds = 2 if is_quick else NUM_ROUNDS
    move_rows = moves(weights, folder, num_rounds)
    sharing_rows = sharing(config, weights, folder)
    switch_rows = switches(weights, folder, num_rounds)
    rows = [{"model": model, **row} for row in (*move_rows, *sharing_rows, *switch_rows)]
    resharding_rows = [{"part": "resharding", **row} for row in state_resharding.rows(is_quick)]
    headlines = move_headlines(move_rows) | sharing_headlines(sharing_rows) | switch_headlines(switch_rows)
    return [*rows, *resharding_rows], headlines | resharding_headlines(resharding_rows)


def resharding_headlines(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    most = max(row["moved_per_needed"] for row in rows if row["system"] in OURS)
    return {"needed_bytes_over_moved": headline(1 / most, 1.0, "share", "the worst of reading shards and of weight syncs")}


def _table(rows: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(title="State manager", title_justify="left")
    for name in ("part", "what", "MB", "plait", "plain"):
        table.add_column(name, justify="left" if name in ("part", "what") else "right")
    for row in rows:
        table.add_row(*_cells(row))
    return table


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    match row["part"]:
        case "moves":
            speeds = (f"{row[name]:.2f} GB/s" for name in ("plait_gb_per_s", "plain_gb_per_s"))
            return "moves", row["route"], f"{row['bytes'] / 1e6:.0f}", *speeds
        case "sharing":
            stored, logical = (f"{row[name] / 1e6:.0f} MB" for name in ("stored_bytes", "logical_bytes"))
            return "sharing", row["tier"], f"{row['distinct_bytes'] / 1e6:.0f}", stored, logical
        case "resharding":
            moved = f"{row['moved_per_needed']:.2f}x moved"
            speed = f"{row['needed_gigabytes_per_s']:.2f} GB/s"
            cells = ("", f"{moved}, {speed}") if row["system"] not in OURS else (f"{moved}, {speed}", "")
            return "resharding", f"{row['case']}, {row['system']}", f"{row['needed_bytes'] / 1e6:.0f}", *cells
        case _:
            return (
                "switch",
                f"{row['weights']}, from {row['from']}",
                f"{row['bytes'] / 1e6:.0f}",
                f"{row['switch_s']:.3f} s",
                f"{row['plain_s']:.3f} s",
            )


if __name__ == "__main__":
    main()
