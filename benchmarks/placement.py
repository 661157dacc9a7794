"""Placement of many jobs on one cluster: decisions a second, and what sharing saves against devices of one's own.

    python -m benchmarks.placement [--quick] [--json FILE]

A seeded stream of jobs like PlexRL's (`placement_jobs` tells what is assumed) runs through each policy in a coarse event loop, in
which a job advances at the slowdown that the placer expects. Isolated = 100. Times of decisions are CPU seconds of this process,
which has one thread; the cluster is full and the queue long, and a decision that starts many jobs counts as one.
"""

import argparse
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.common import headline, write_json
from benchmarks.placement_jobs import Arrival, arrivals, nodes_of, train_idle
from benchmarks.placement_loop import Loop, Outcome
from plait.placement.placer import Placer
from plait.placement.policies import Isolated, Pack, Spread, SpreadBackfill

POLICIES: Mapping[str, type[Placer]] = {"isolated": Isolated, "pack": Pack, "spread": Spread, "spread+backfill": SpreadBackfill}
PAPER = {"pack": 70.0, "spread": 65.0, "spread+backfill": 56.0}
"""Makespan with isolated = 100."""
STREAMS = {"asynchronous": (1.0, 1, 800), "synchronous": (0.0, 1, 300), "asynchronous, large pools": (1.0, 2, 300)}
"""Share of the kinds of jobs that train beside the next rollout, a factor of all pools' devices, jobs.

PlexRL compares with split, asynchronous jobs: that is the claim. How large its pools are, for the cluster, is not known.
"""
QUICK_DEVICES, QUICK_JOBS = 256, 40
GAP_S, SEED, SLO = 60.0, 1, 1.2
SIZES = (64, 256, 1024, 2048)
CROWD, TIMED = 1000, 1300
"""Jobs at the largest cluster, nearly all there at once; decisions that are timed."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="256 devices, 40 jobs")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    parser.add_argument("--seed", type=int, default=SEED, help="of the stream of jobs")
    arguments = parser.parse_args()
    console = Console()
    devices = QUICK_DEVICES if arguments.quick else SIZES[-1]
    rows: list[dict[str, Any]] = []
    for name, (asynchronous, pool_scale, num_jobs) in STREAMS.items():
        stream = arrivals(QUICK_JOBS if arguments.quick else num_jobs, GAP_S, arguments.seed, devices, asynchronous, pool_scale)
        rows += _compare(name, stream, devices, console)
    for size in (64, 256) if arguments.quick else SIZES:
        rows.append(_timed(size, QUICK_JOBS if arguments.quick else CROWD * size // SIZES[-1] + 50, arguments.seed))
        speed = rows[-1]["decisions_per_s"]
        console.log(f"{size} devices: {speed:.0f} decisions/s, slowest {rows[-1]['slowest_decision_s']:.3f} s")
    headlines = headlines_of(rows)
    console.print(_table(row for row in rows if "stream" in row))
    for name, values in headlines.items():
        console.print(f"{name}: {values}")
    if arguments.json:
        write_json(arguments.json, rows, headlines)


def _compare(stream_name: str, stream: Sequence[Arrival], devices: int, console: Console) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    idle = train_idle(stream)
    for name, policy in POLICIES.items():
        outcome = Loop(policy(nodes_of(devices)), stream).run()
        base = rows[0] if rows else None
        about = {"stream": stream_name, "policy": name, "devices": devices, "jobs": len(stream), "train_idle": idle}
        rows.append(about | _row(outcome))
        for figure in ("makespan_s", "device_hours"):
            rows[-1][f"{figure}_relative"] = 100 * rows[-1][figure] / (base or rows[-1])[figure]
        console.log(f"{stream_name} {name}: makespan {rows[-1]['makespan_s_relative']:.1f}, {sum(outcome.decisions_s):.1f} s CPU")
    return rows


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


def _timed(devices: int, num_jobs: int, seed: int) -> dict[str, Any]:
    """The policy that looks at most."""
    stream = arrivals(num_jobs, 3.0, seed, devices, 0.5)
    outcome = Loop(SpreadBackfill(nodes_of(devices)), stream).run(max_decisions=num_jobs + num_jobs * (TIMED - CROWD) // CROWD)
    return {"policy": "spread+backfill", "devices": devices, "jobs": num_jobs, **_speed(outcome.decisions_s)}


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
    slowest = max(row["slowest_decision_s"] for row in timed)
    note = ", ".join(f"{row['devices']} devices {row['decisions_per_s']:.0f}/s" for row in timed)
    claims["slowest_decision_per_s"] = headline(1 / slowest, 1.0, "1/s", f"{slowest:.3f} s; on average {note}")
    worst = max(row["max_slowdown"] for row in rows if "stream" in row)
    over = sum(row["over_slo"] for row in rows if "stream" in row)
    claims["slo_kept"] = headline(SLO / worst, 1.0, "x", f"largest slowdown {worst:.3f}, bound {SLO}; {over} runs of a job over it")
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
