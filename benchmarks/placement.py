"""Placement of many jobs on one cluster: decisions a second, and what sharing saves against devices of one's own.

    python -m benchmarks.placement [--quick] [--json FILE]

A seeded stream of jobs like PlexRL's (`placement_jobs` tells what is assumed) runs through each policy in a coarse event loop, in
which a job advances at the slowdown that the placer expects. Isolated = 100. Times of decisions are CPU seconds of this process,
which has one thread; the cluster is full and the queue long, and a decision that starts many jobs counts as one.
"""

import argparse
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.common import headline, write_json
from benchmarks.placement_jobs import arrivals, nodes_of, train_idle
from benchmarks.placement_loop import Loop, Outcome
from plait.placement.placer import Placer
from plait.placement.policies import Isolated, Pack, Spread, SpreadBackfill

POLICIES: Mapping[str, type[Placer]] = {"isolated": Isolated, "pack": Pack, "spread": Spread, "spread+backfill": SpreadBackfill}
PAPER = {"pack": 70.0, "spread": 65.0, "spread+backfill": 56.0}
"""Makespan with isolated = 100."""
STREAMS = {"asynchronous": (1.0, 1, 600), "synchronous": (0.0, 1, 250), "asynchronous, large pools": (1.0, 2, 250)}
"""Share of the kinds of jobs that train beside the next rollout, a factor of all pools' devices, jobs.

PlexRL compares with split, asynchronous jobs: that is the claim. How large its pools are, for the cluster, is not known.
"""
QUICK_DEVICES, QUICK_JOBS = 256, 40
GAP_S, CROWD_GAP_S, SEED, SLO = 60.0, 3.0, 1, 1.2
SIZES = (64, 256, 1024, 2048)
CROWD, TIMED = 1000, 1300
"""Jobs at the largest cluster, nearly all there at once; decisions that are timed."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="256 devices, 40 jobs")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    parser.add_argument("--seed", type=int, default=SEED, help="of the stream of jobs")
    parser.add_argument("--workers", type=int, default=1, help="processes; one policy and stream is always of one")
    arguments = parser.parse_args()
    console = Console()
    tasks = _tasks(arguments.quick, arguments.seed)
    rows: list[dict[str, Any]] = []
    with ProcessPoolExecutor(arguments.workers) as pool:
        for row in pool.map(_run, tasks):
            rows.append(row)
            console.log({key: row[key] for key in ("stream", "policy", "devices", "makespan_s", "decisions_per_s") if key in row})
    _relate(rows)
    headlines = headlines_of(rows)
    console.print(_table(row for row in rows if "stream" in row))
    for name, values in headlines.items():
        console.print(f"{name}: {values}")
    if arguments.json:
        write_json(arguments.json, rows, headlines)


def _tasks(is_quick: bool, seed: int) -> list[dict[str, Any]]:
    devices = QUICK_DEVICES if is_quick else SIZES[-1]
    tasks: list[dict[str, Any]] = [
        {
            "stream": stream,
            "policy": policy,
            "devices": devices,
            "jobs": QUICK_JOBS if is_quick else STREAMS[stream][2],
            "seed": seed,
        }
        for stream in STREAMS
        for policy in reversed([*POLICIES])
    ]
    for size in (64, 256) if is_quick else SIZES:
        num_jobs = QUICK_JOBS if is_quick else CROWD * size // SIZES[-1] + 50
        tasks.append({"policy": "spread+backfill", "devices": size, "jobs": num_jobs, "seed": seed})
    return tasks


def _run(task: dict[str, Any]) -> dict[str, Any]:
    placer = POLICIES[task["policy"]](nodes_of(task["devices"]))
    if "stream" not in task:
        stream = arrivals(task["jobs"], CROWD_GAP_S, task["seed"], task["devices"], 0.5)
        outcome = Loop(placer, stream).run(max_decisions=task["jobs"] + task["jobs"] * (TIMED - CROWD) // CROWD)
        return task | _speed(outcome.decisions_s)
    asynchronous, pool_scale, _ = STREAMS[task["stream"]]
    stream = arrivals(task["jobs"], GAP_S, task["seed"], task["devices"], asynchronous, pool_scale)
    return task | {"train_idle": train_idle(stream)} | _row(Loop(placer, stream).run())


def _relate(rows: Sequence[dict[str, Any]]) -> None:
    """To isolated = 100, in the same stream."""
    isolated = {row["stream"]: row for row in rows if row["policy"] == "isolated"}
    for row in rows:
        if "stream" in row:
            for figure in ("makespan_s", "device_hours"):
                row[f"{figure}_relative"] = 100 * row[figure] / isolated[row["stream"]][figure]


def _row(outcome: Outcome) -> dict[str, Any]:
    slowdowns, waits_s = sorted(outcome.slowdowns.values()), sorted(outcome.waits_s)
    return {
        "makespan_s": outcome.makespan_s,
        "device_hours": outcome.device_hours,
        "mean_slowdown": sum(slowdowns) / len(slowdowns),
        "max_slowdown": slowdowns[-1],
        "over_slo": sum(slowdown > SLO * (1 + 1e-6) for slowdown in slowdowns),
        "mean_wait_s": sum(waits_s) / len(waits_s),
        **_speed(outcome.decisions_s),
    }


def _speed(decisions_s: Sequence[float]) -> dict[str, float]:
    ordered = sorted(decisions_s)
    return {
        "decisions_per_s": len(ordered) / max(sum(ordered), 1e-9),
        "median_decision_s": ordered[len(ordered) // 2],
        "slowest_decision_s": ordered[-1],
    }


def headlines_of(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Savings: how much less than isolated, in percent; the stream that the claim is about, and the others in the note."""
    claims: dict[str, Any] = {}
    for policy, paper in PAPER.items():
        found = {row["stream"]: row["makespan_s_relative"] for row in rows if row.get("stream") and row["policy"] == policy}
        note = ", ".join(f"{name} {value:.1f}" for name, value in found.items())
        claims[f"makespan_saved_{policy}"] = headline(
            100 - found["asynchronous"], 100 - paper, "%", f"makespan with isolated = 100: {note}; paper {paper:.0f}"
        )
    timed = [row for row in rows if "stream" not in row]
    slowest = max(row["slowest_decision_s"] for row in rows)
    note = ", ".join(f"{row['devices']} devices {row['decisions_per_s']:.0f}/s" for row in timed)
    claims["slowest_decision_per_s"] = headline(1 / slowest, 1.0, "1/s", f"{slowest:.3f} s; on average {note}")
    worst = max(row["max_slowdown"] for row in rows if "stream" in row)
    over = sum(row["over_slo"] for row in rows if "stream" in row)
    claims["slo_kept"] = headline(SLO / worst, 1.0, "x", f"expected, at most {worst:.3f}, bound {SLO}; {over} jobs over it")
    return claims


def _table(rows: Iterable[Mapping[str, Any]]) -> Table:
    table = Table(title="Isolated = 100", title_justify="left")
    for name in ("stream", "policy", "makespan", "device-hours", "mean slowdown", "largest", "mean wait h"):
        table.add_column(name, justify="left" if name in ("stream", "policy") else "right")
    for row in rows:
        figures = (row["makespan_s_relative"], row["device_hours_relative"])
        rest = (f"{row['mean_slowdown']:.3f}", f"{row['max_slowdown']:.3f}", f"{row['mean_wait_s'] / 3600:.1f}")
        table.add_row(row["stream"], row["policy"], *(f"{value:.1f}" for value in figures), *rest)
    return table


if __name__ == "__main__":
    main()
