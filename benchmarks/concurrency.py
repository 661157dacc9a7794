"""Adaptive concurrency against fixed numbers of rows: tokens a second under loads that differ and change.

    python -m benchmarks.concurrency [--quick] [--json FILE] [--threads 2] [--seconds S]

- A real engine with four adapters, on a random tiny model and on SmolLM2-135M, as `plait run` sets it up (64 rows at most, chunks
  of 128 tokens). Clients ask again when they have their answer; a load says how many there are and how long answers they want.
- Rows decoded at once are limited to 1, 2, 4, ..., 64, or to what the controller finds, which starts at 32 and knows nothing.
- All settings take turns under each load, for the same time; the fastest of a setting's rounds counts. Finding the limit is part of
  the adaptive setting's time.
- The best fixed setting is picked afterwards, for each load apart: nobody could have known it.
"""

import argparse
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.common import headline, interleave, write_json
from benchmarks.concurrency_loads import LOADS, Load
from benchmarks.concurrency_run import MAX_ROWS, LoadedEngine, Outcome, make_limit
from benchmarks.engine_systems import PlaitEngine
from benchmarks.engine_table import print_headlines
from plait.models.catalogue import find
from plait.models.huge_pages import use_huge_pages
from plait.models.tiny import make_tiny_model

ADAPTIVE = "adaptive"
FIXED = tuple(str(2**power) for power in range(MAX_ROWS.bit_length()))
FIXED_QUICK = ("1", "8", "64")
SMOLLM2 = "smollm2-135m-instruct"
SECONDS = {"tiny": 20.0, "smollm2": 60.0}
SECONDS_QUICK = {"tiny": 5.0}
NUM_ROUNDS = 2
GOAL_OF_BEST, GOAL_OF_WORST = 0.95, 1.0

Row = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="the tiny model, three fixed settings, two loads, one round")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, help="of each run, instead of 20 s on the tiny model and 60 s on SmolLM2")
    arguments = parser.parse_args()
    console = Console()
    torch.set_num_threads(arguments.threads)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        for name, default_s in (SECONDS_QUICK if arguments.quick else SECONDS).items():
            model = _model(name, Path(folder))
            rows += run_model(console, name, model, arguments.quick, arguments.seconds or default_s)
    headlines = headlines_of(rows)
    print_headlines(console, headlines)
    if arguments.json:
        write_json(arguments.json, rows, headlines)


def _model(name: str, folder: Path) -> PlaitEngine:
    """In float32: no processor emulates it."""
    model = PlaitEngine(make_tiny_model(folder / name) if name == "tiny" else find(SMOLLM2), "float32")
    use_huge_pages()
    return model


def run_model(console: Console, name: str, model: PlaitEngine, is_quick: bool, seconds: float) -> list[Row]:
    settings = (*(FIXED_QUICK if is_quick else FIXED), ADAPTIVE)
    rows: list[Row] = []
    for load in LOADS[::3] if is_quick else LOADS:
        run_once(model, load, "8", min(1.0, seconds))  # First calls allocate and lay out.
        systems = {setting: partial(run_once, model, load, setting, seconds) for setting in settings}
        outcomes = interleave(systems, 1 if is_quick else NUM_ROUNDS)
        new_rows = [row_of(name, load, setting, found) for setting, found in outcomes.items()]
        print_table(console, f"{name}, {load.name}, {seconds:g} s each", new_rows)
        rows += new_rows
    return rows


def run_once(model: PlaitEngine, load: Load, setting: str, seconds: float) -> Outcome:
    return LoadedEngine(model, load, make_limit(setting)).run(seconds)


def row_of(model: str, load: Load, setting: str, outcomes: Sequence[Outcome]) -> Row:
    fastest = max(outcomes, key=lambda outcome: outcome.tokens_per_s)
    return {
        "system": f"{setting} rows" if setting != ADAPTIVE else ADAPTIVE,
        "model": model,
        "load": load.name,
        "tokens_per_s": fastest.tokens_per_s,
        "tokens_per_s_of_rounds": [outcome.tokens_per_s for outcome in outcomes],
        "mean_limit": fastest.mean_limit,
        "median_latency_s": fastest.median_latency_s,
        "answers": len(fastest.latencies_s),
    }


def headlines_of(rows: Sequence[Row]) -> dict[str, Any]:
    """Of the load on which the adaptive setting does worst."""
    shares = [_shares(group) for group in _by_load(rows).values()]
    of_best, worst_case = min((best, case) for best, _, case in shares)
    of_worst = min(worst for _, worst, _ in shares)
    note = f"the least of {len(shares)} loads: {worst_case}"
    one = best_single(rows)
    return {
        "adaptive of the best fixed": headline(of_best, GOAL_OF_BEST, "of its tokens/s", note),
        "adaptive of the worst fixed": headline(of_worst, GOAL_OF_WORST, "x its tokens/s", "the least of all loads"),
        "adaptive of the best single fixed": headline(
            one[1], GOAL_OF_BEST, "of its tokens/s", f"geometric mean over loads; the best one setting for all is {one[0]}"
        ),
    }


def _by_load(rows: Sequence[Row]) -> dict[tuple[str, str], list[Row]]:
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["model"], row["load"]), []).append(row)
    return groups


def _shares(rows: Sequence[Row]) -> tuple[float, float, str]:
    """Adaptive's speed as a share of the best and of the worst fixed setting's under one load."""
    speeds = {row["system"]: row["tokens_per_s"] for row in rows}
    adaptive = speeds.pop(ADAPTIVE)
    best = max(speeds, key=lambda name: speeds[name])
    return adaptive / speeds[best], adaptive / min(speeds.values()), f"{rows[0]['model']}, {rows[0]['load']}, against {best}"


def best_single(rows: Sequence[Row]) -> tuple[str, float]:
    """The fixed setting that does best over all loads together, and adaptive's speed as a share of its."""
    groups = list(_by_load(rows).values())
    speeds = [{row["system"]: row["tokens_per_s"] for row in group} for group in groups]
    means = {name: _geometric_mean([of_load[name] for of_load in speeds]) for name in speeds[0]}
    adaptive = means.pop(ADAPTIVE)
    best = max(means, key=lambda name: means[name])
    return best, adaptive / means[best]


def _geometric_mean(values: Sequence[float]) -> float:
    return float(torch.tensor(values, dtype=torch.float64).log().mean().exp())


def print_table(console: Console, title: str, rows: Sequence[Mapping[str, Any]]) -> None:
    table = Table(title=title, title_justify="left")
    for name in ("system", "tokens/s", "mean limit", "answers", "median answer s"):
        table.add_column(name, justify="left" if name == "system" else "right")
    for row in rows:
        latency = row["median_latency_s"]
        cells = [row["system"], f"{row['tokens_per_s']:.1f}", f"{row['mean_limit']:.1f}", str(row["answers"])]
        table.add_row(*cells, "-" if latency is None else f"{latency:.2f}")
    console.print(table)


if __name__ == "__main__":
    main()
