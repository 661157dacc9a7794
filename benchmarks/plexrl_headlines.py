"""What `benchmarks.plexrl` claims. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.common import headline
from benchmarks.plexrl_jobs import PAIR, SIX
from benchmarks.plexrl_systems import ORDERED, PLAIT_ONE, PLAIT_TRAINING, PLAIT_TWO, SPLIT

Row = Mapping[str, Any]
GOAL_OF_SPLIT = 0.624
GOAL_SLOWDOWN = 1.2
SHARED = (PLAIT_TRAINING, PLAIT_TWO, PLAIT_ONE)


def headlines_of(rows: Sequence[Row], num_compared: int, num_faults: int, bubbles: Mapping[str, float]) -> dict[str, Any]:
    by_name = {(row["scenario"], row["system"]): row for row in rows}
    told = ", ".join(f"{job} {share:.0%}" for job, share in bubbles.items())
    found = {"training_bubble_min": headline(min(bubbles.values()), 0.7, "of the time", f"{PAIR.name}, alone: {told}")}
    for scenario in (PAIR, SIX):
        for system in SHARED:
            if (scenario.name, system.name) in by_name:
                found |= _of_row(by_name[scenario.name, system.name], by_name[scenario.name, SPLIT.name])
    found |= _of_orders([row for row in rows if row["scenario"] == SIX.name])
    note = f"of {num_compared} adapters, against the job alone"
    return found | {"digests_equal": headline(1 - num_faults / max(1, num_compared), 1.0, "of adapters", note)}


def _of_row(row: Row, split: Row) -> dict[str, Any]:
    name = f"{row['scenario']}, {row['system']}".replace(", ", "_").replace(" ", "_")
    share, slowest = row["of_split"], max(row["slowdown"], key=row["slowdown"].get)
    most = f"{row['workers']} workers for {split['workers']}, which save at most {1 - row['least_of_split']:.1%}"
    told = f"{share:.3f} of split, which is to be at most {GOAL_OF_SPLIT}; {most}"
    slower = f"{row['max_slowdown']:.2f} ({slowest}), which is to be at most {GOAL_SLOWDOWN}"
    return {
        f"{name}_saved": headline(1 - share, 1 - GOAL_OF_SPLIT, "of worker-seconds per step", told),
        f"{name}_pace": headline(1 / row["max_slowdown"], 1 / GOAL_SLOWDOWN, "of the pace alone", f"slowdown {slower}"),
    }


def _of_orders(rows: Sequence[Row]) -> dict[str, Any]:
    """HRRS against each of the others on the same group: how much slower jobs are under it. Above 1 is better."""
    by_name = {row["system"]: row for row in rows}
    if not by_name:
        return {}
    hrrs = by_name[PLAIT_ONE.name]
    found = {}
    for system in ORDERED:
        if (row := by_name.get(system.name)) is not None:
            largest = f"largest slowdown {hrrs['max_slowdown']:.2f} for {row['max_slowdown']:.2f}"
            note = f"switches {hrrs['switches']} for {row['switches']}; {largest}"
            found[f"hrrs_for_{system.order}"] = headline(row["mean_slowdown"] / hrrs["mean_slowdown"], 1.0, "x mean slowdown", note)
    return found
