"""Many tasks at once: Plait against one task after another, one disaggregated task at a time, and synchronous multi-LoRA.

    python -m benchmarks.marlaas [--quick] [--json FILE]

- All systems are Plait's own components under other policies (`marlaas_systems`), run interleaved: for each number of tasks every
  system in turn. The clock starts when a system's processes are up and warm, and ends with its last task.
- "agentic": delays such that a task alone keeps its rollout worker 20-25 % busy (measured, printed). "compute_bound": none.
  "real_model": SmolLM2, with delays.
- decoding = share of the time in which the rollout worker computes; where one process does both, without the time it trains.
"""

import argparse
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from rich.console import Console

from benchmarks.common import headline, write_json
from benchmarks.marlaas_calibration import ACCEPTED_UTILISATION
from benchmarks.marlaas_grid import Grid
from benchmarks.marlaas_scenarios import FULL, QUICK, Bench, Scenario
from benchmarks.marlaas_table import print_table

GOAL_TASKS = 32
TABLE_WIDTH = 185
"""Lines are not broken where there is no terminal."""
NUM_LONE_RUNS, NUM_LONE_RUNS_QUICK = 8, 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="1 and 4 tasks on the tiny model: about two minutes")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    parser.add_argument("--scenario", choices=[scenario.name for scenario in FULL], help="only this one")
    parser.add_argument("--tasks", type=int, nargs="+", help="only these numbers of tasks, in scenarios that have them")
    arguments = parser.parse_args()
    console = Console()
    wide = Console(width=max(console.width, TABLE_WIDTH))
    scenarios = chosen_scenarios(arguments)
    with tempfile.TemporaryDirectory(prefix="plait-bench-") as folder:
        grids = [
            Grid(
                Bench(scenario, Path(folder) / scenario.name),
                partial(print, flush=True),
                _num_lone_runs(arguments.quick, scenario.name),
            )
            for scenario in scenarios
        ]
        for grid in grids:
            grid.run()
    headlines = _headlines(grids)
    for grid in grids:
        print_table(wide, _title(grid), grid.rows)
        _print_lone_utilisation(console, grid)
    for name, values in headlines.items():
        console.print(f"{name}: {values}")
    if arguments.json:
        write_json(arguments.json, [row for grid in grids for row in grid.rows], headlines)


def chosen_scenarios(arguments: argparse.Namespace) -> list[Scenario]:
    named = [s for s in (QUICK if arguments.quick else FULL) if arguments.scenario in (None, s.name)]
    if arguments.tasks is None:
        return named
    fitted = [replace(s, num_tasks=tuple(number for number in s.num_tasks if number in arguments.tasks)) for s in named]
    return [scenario for scenario in fitted if scenario.num_tasks]


def _num_lone_runs(is_quick: bool, scenario: str) -> int:
    if scenario != "agentic":
        return 0  # the systems with one task at a time are the comparison there
    return NUM_LONE_RUNS_QUICK if is_quick else NUM_LONE_RUNS


def _title(grid: Grid) -> str:
    scenario = grid.bench.scenario
    return f"{scenario.name}: {scenario.steps} steps a task, {scenario.max_new_tokens} new tokens an answer"


def _print_lone_utilisation(console: Console, grid: Grid) -> None:
    shares = lone_shares(grid.rows)
    if grid.bench.scenario.has_delays and shares:
        low, high = ACCEPTED_UTILISATION
        console.print(
            f"a task alone keeps its rollout worker {fmean(shares):.1%} busy "
            f"(from {min(shares):.1%} to {max(shares):.1%}; wanted {low:.0%} to {high:.0%})\n"
        )


def lone_shares(rows: Sequence[Mapping[str, Any]]) -> list[float]:
    """Of every task in every run of the disaggregated system."""
    return [share for row in rows for share in row.get("lone_rollout_utilisation", {}).values()]


def _headlines(grids: Sequence[Grid]) -> dict[str, Any]:
    by_name = {grid.bench.scenario.name: grid for grid in grids}
    found: dict[str, Any] = {}
    if "agentic" in by_name:
        found |= gains(by_name["agentic"].rows)
    if {"agentic", "compute_bound"} <= by_name.keys():
        found |= _regimes(by_name["agentic"], by_name["compute_bound"])
    return found | {"adapter_digests_equal": _digests_headline(grids)}


def _digests_headline(grids: Sequence[Grid]) -> dict[str, Any]:
    compared = [grid.compare_digests() for grid in grids]
    num_compared, faults = sum(num for num, _ in compared), [fault for _, found in compared for fault in found]
    note = f"{num_compared} adapters compared with those of the task trained alone"
    if not all(grid.all_invariant for grid in grids):
        note += "; this machine is not batch invariant, so they need not be equal"
    return headline(float(not faults and num_compared > 0), 1, "1 if all are", note="; ".join([note, *faults[:5]]))


def gains(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """At the largest number of tasks."""
    num_tasks = max(row["tasks"] for row in rows)
    plait, sequential, synchronous = (_row(rows, num_tasks, system) for system in ("plait", "sequential", "synchronous_multi_lora"))
    note = f"{num_tasks} tasks" if num_tasks >= GOAL_TASKS else f"{num_tasks} tasks; the goal is for {GOAL_TASKS}"
    return {
        "steps_per_hour_vs_sequential": headline(plait["steps_per_hour"] / sequential["steps_per_hour"], 5.7, "x", note=note),
        "end_to_end_saved_vs_sequential": headline(
            1 - plait["end_to_end_s"] / sequential["end_to_end_s"], 0.82, "share", note=note
        ),
        "steps_per_hour_vs_synchronous": headline(plait["steps_per_hour"] / synchronous["steps_per_hour"], 2.9, "x", note=note),
        "utilisation_vs_sequential": headline(
            plait["rollout_utilisation"] / sequential["rollout_utilisation"],
            3.5,
            "x",
            note=f"{note}; share of the time spent decoding",
        ),
    }


def _regimes(agentic: Grid, compute_bound: Grid) -> dict[str, Any]:
    """Without delays the gain must be smaller, for the same tasks."""
    num_tasks = max(compute_bound.bench.scenario.num_tasks)
    slow, fast = (
        grid.row(num_tasks, "plait")["steps_per_hour"] / grid.row(num_tasks, "sequential")["steps_per_hour"]
        for grid in (agentic, compute_bound)
    )
    note = f"{num_tasks} tasks: {slow:.2f}x with delays, {fast:.2f}x without"
    return {"gain_with_delays_over_gain_without": headline(slow / fast, 1, "x", note=note)}


def _row(rows: Sequence[Mapping[str, Any]], num_tasks: int, system: str) -> Mapping[str, Any]:
    return next(row for row in rows if row["tasks"] == num_tasks and row["system"] == system)


if __name__ == "__main__":
    main()
