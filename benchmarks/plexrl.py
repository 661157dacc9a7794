"""Worker groups that jobs share, against workers of each job's own: worker-seconds per training step, slowdowns, switches.

    python -m benchmarks.plexrl [--quick] [--pair] [--rounds N] [--json FILE]

- Real jobs on tiny base models, in real worker processes with one thread each, by the code that serves `workers.layout =
  "multiplexed"`. Tools are waited for, as in agentic work. All systems in turn, round after round.
- "isolated": one job after another, each on a rollout and a training worker of its own; slowdowns are relative to it. "split": all
  at once, with such workers for each. "colocated": one worker of each job does both. Groups: workers that all jobs share, for all
  calls ("one group"), by role ("two groups"), or for training only. Their devices have room for half of what their jobs take.
- A worker-second is a second for which a worker is held, busy or not, as GPU-hours are counted; it says nothing about cores. Fewer
  workers save at most their share: two jobs on a shared training group hold three for four. What is short of that is told, as
  seconds per step that a job waits for others' calls, that its state takes to come, and the rest.
- Digests: every adapter that a job has when it trains with others is to be the one it has alone.
"""

import argparse
import asyncio
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console

from benchmarks.common import write_json
from benchmarks.engine_table import print_headlines
from benchmarks.marlaas_digests import compare, merge
from benchmarks.marlaas_measures import Digests
from benchmarks.plexrl_headlines import headlines_of
from benchmarks.plexrl_jobs import PAIR, SCENARIOS, SIX, Scenario, make_models
from benchmarks.plexrl_measures import busy_shares, digests_of, of_split, row_of, step_times_s
from benchmarks.plexrl_run import Outcome, run_system
from benchmarks.plexrl_systems import ISOLATED, ORDERED, QUICK_SYSTEMS, SPLIT, SYSTEMS, UNLIMITED, System
from benchmarks.plexrl_table import print_bubbles, print_rows
from plait.cluster.messages import TRAIN

MEASURED_S, QUICK_MEASURED_S = 15.0, 8.0
TABLE_WIDTH = 140
Runs = dict[str, list[list[Outcome]]]
"""By system: of each round, one outcome, or one for each job alone."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer systems, a shorter time: some five minutes")
    parser.add_argument("--pair", action="store_true", help="two jobs only")
    parser.add_argument("--rounds", type=int, default=1, help="how often each system runs")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    arguments = parser.parse_args()
    console = Console()
    console = Console(width=max(console.width, TABLE_WIDTH))
    systems, measured_s = (QUICK_SYSTEMS, QUICK_MEASURED_S) if arguments.quick else (SYSTEMS, MEASURED_S)
    rows: list[dict[str, Any]] = []
    faults: list[str] = []
    num_compared, bubbles = 0, {}
    for scenario in SCENARIOS[:1] if arguments.pair else SCENARIOS:
        scenario_systems = [system for system in systems if scenario is SIX or system not in ORDERED]
        runs = run_all(console, scenario, scenario_systems, arguments.rounds, measured_s)
        bubbles[scenario.name] = bubbles_of(runs[ISOLATED.name])
        print_bubbles(console, scenario.name, bubbles[scenario.name])
        rows += rows_of(scenario, scenario_systems, runs)
        num, found = compared(runs)
        num_compared, faults = num_compared + num, faults + found
    print_rows(console, rows)
    for fault in faults:
        console.print(fault)
    headlines = headlines_of(rows, num_compared, len(faults), bubbles[PAIR.name])
    print_headlines(console, headlines)
    if arguments.json:
        write_json(arguments.json, rows, headlines)


def run_all(console: Console, scenario: Scenario, systems: Sequence[System], num_rounds: int, measured_s: float) -> Runs:
    """In turn. The sizes of deployments are those that were seen where all fit."""
    runs: Runs = {system.name: [] for system in systems}
    sizes: Mapping[str, int] = {}
    with tempfile.TemporaryDirectory(prefix="plait-bench-") as place:
        models = Path(place)
        make_models(models, scenario.jobs)
        for number in range(num_rounds):
            for position, system in enumerate(systems):
                console.print(f"{scenario.name}, round {number + 1}: {system.name}", style="dim")
                folder = models / f"run-{number}-{position}"
                folder.mkdir()
                outcomes = asyncio.run(run_system(system, scenario.jobs, sizes, measured_s, folder))
                runs[system.name].append(outcomes)
                sizes = outcomes[0].sizes if system is UNLIMITED else sizes
    return runs


def rows_of(scenario: Scenario, systems: Sequence[System], runs: Runs) -> list[dict[str, Any]]:
    """Of each system, the round whose worker-seconds per step are the median; what jobs take alone is the median of rounds."""
    alone = [step_times_s(outcomes) for outcomes in runs[ISOLATED.name]]
    alone_s = {job.name: median(times_s[job.name] for times_s in alone) for job in scenario.jobs}
    rows = []
    for system in systems:
        found = [row_of(scenario.name, system, outcomes, alone_s) for outcomes in runs[system.name]]
        found.sort(key=lambda row: row["worker_seconds_per_step"])
        row = found[(len(found) - 1) // 2]
        rows.append(row | {"rounds": [one["worker_seconds_per_step"] for one in found]})
    split = next(row for row in rows if row["system"] == SPLIT.name)
    return [row | of_split(row, split) for row in rows]


def bubbles_of(rounds: Sequence[Sequence[Outcome]]) -> dict[str, float]:
    """Share of the time for which each job's training worker is idle, alone: the median of rounds."""
    shares = [busy_shares(outcomes, TRAIN) for outcomes in rounds]
    return {job: 1 - median(share[job] for share in shares) for job in shares[0]}


def compared(runs: Runs) -> tuple[int, list[str]]:
    """Steps that a job has not reached alone are not compared."""
    alone, faults = merge([digests_of(outcomes) for outcomes in runs[ISOLATED.name]])
    together: dict[str, Digests] = {}
    for name, rounds in runs.items():
        for number, outcomes in enumerate(rounds):
            found = digests_of(outcomes)
            together[f"{name}, round {number + 1}"] = {key: digest for key, digest in found.items() if key in alone}
    num_compared, different = compare(alone, together)
    return num_compared, faults + different


if __name__ == "__main__":
    main()
