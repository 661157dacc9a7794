"""HRRS against the other orders, on one worker group: slowdowns, switches, and whether the bounds on overtaking hold.

    python -m benchmarks.hrrs [--quick] [--json FILE] [--figure FILE]

- The queue, the orders and the estimates are those of the server; time is simulated, so the machine decides nothing but
  `decisions_per_s`. The device holds one deployment.
- All orders get the same asks (`hrrs_loads`). In an open load FIFO may fall behind for good, as each call may need a setup.
- A call's slowdown is (wait + setup + service) / service. A job's is the time in which it had a call unanswered, over what its
  calls take alone.
- Estimates are learned as calls end; those of setups are known.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean, quantiles
from typing import Any

from rich.console import Console

from benchmarks.common import write_json
from benchmarks.engine_table import print_headlines
from benchmarks.hrrs_headlines import HRRS, PLAIN, headlines_of
from benchmarks.hrrs_loads import FULL, QUICK, SINGLE, Load
from benchmarks.hrrs_overtaking import WatchedHrrs
from benchmarks.hrrs_run import Outcome, Run
from benchmarks.hrrs_table import draw_figure, print_rows
from plait.scheduling.hrrs import LOOKAHEAD, Hrrs
from plait.scheduling.orders import ORDERS, Order

SYSTEMS: dict[str, Callable[[], Order]] = {
    HRRS: lambda: WatchedHrrs(LOOKAHEAD),
    PLAIN: lambda: WatchedHrrs(0.0),
    **{name: make for name, make in ORDERS.items() if name != HRRS},
}
NUM_STEPS = 240
"""Of all jobs of a load together."""
NUM_SEEDS = 2
FIRST_SEED = 100
"""`LOOKAHEAD` was chosen on others."""
TABLE_WIDTH = 150
"""Lines are not broken where there is no terminal."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a few loads: some ten seconds")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    parser.add_argument("--figure", type=Path, help="draw them to this file")
    arguments = parser.parse_args()
    console = Console()
    console = Console(width=max(console.width, TABLE_WIDTH))
    rows = [row for load in (QUICK if arguments.quick else FULL) for row in rows_of(load, NUM_SEEDS, NUM_STEPS)]
    print_rows(console, rows)
    headlines = headlines_of(rows, decisions_per_s(3, NUM_STEPS))
    print_headlines(console, headlines)
    if arguments.json:
        write_json(arguments.json, rows, headlines)
    if arguments.figure:
        draw_figure(arguments.figure, rows)


def rows_of(load: Load, num_seeds: int, num_steps: int) -> list[dict[str, Any]]:
    """One for each order."""
    rows = []
    for system, make in SYSTEMS.items():
        orders = [make() for _ in range(num_seeds)]
        outcomes = [Run(load, load.jobs(seed, num_steps), order).run() for seed, order in enumerate(orders, FIRST_SEED)]
        broken = [order.num_broken for order in orders if isinstance(order, WatchedHrrs)]
        rows.append(row_of(load, system, outcomes) | {"broken_bounds": sum(broken) if broken else None})
    return rows


def row_of(load: Load, system: str, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Over all seeds."""
    slowdowns = [slowdown for outcome in outcomes for slowdown in outcome.slowdowns]
    of_jobs = [slowdown for outcome in outcomes for slowdown in outcome.job_slowdowns]
    totals = [outcome.totals for outcome in outcomes]
    end_s = sum(outcome.end_s for outcome in outcomes)
    row = {
        "load": load.name,
        "kind": load.kind,
        "deployments": load.num_deployments,
        "models_each": load.models_each,
        "setup_share": load.setup_share,
        "utilisation": load.utilisation,
        "system": system,
        "calls": len(slowdowns),
        "mean_slowdown": mean(slowdowns),
        "slowdown_99": quantiles(slowdowns, n=100)[-1],
        "max_slowdown": max(slowdowns),
        "mean_job_slowdown": mean(of_jobs),
        "max_job_slowdown": max(of_jobs),
        "mean_wait_s": sum(total.waited_s for total in totals) / len(slowdowns),
        "switches": sum(total.num_switches for total in totals),
        "setup_time_share": sum(total.overhead_s for total in totals) / end_s,
        "service_time_share": sum(total.service_s for total in totals) / end_s,
    }
    return {name: round(value, 4) if isinstance(value, float) else value for name, value in row.items()}


def decisions_per_s(num_rounds: int, num_steps: int) -> float:
    """Of a whole simulation of a small group, per second of processor time: the best round, as others use the machine too."""
    load = Load(SINGLE, 2, 1, 0.1, 0.95)
    speeds = []
    for seed in range(num_rounds):
        jobs = load.jobs(seed, 10 * num_steps)
        start_s = time.process_time()
        outcome = Run(load, jobs, Hrrs()).run()
        speeds.append(outcome.totals.num_calls / (time.process_time() - start_s))
    return max(speeds)


if __name__ == "__main__":
    main()
