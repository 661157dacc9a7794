"""What was set out to reach, and what was reached. Goals are upper bounds, but for the speed."""

from collections.abc import Mapping, Sequence
from statistics import geometric_mean
from typing import Any

from benchmarks.common import headline
from benchmarks.hrrs_loads import CLOSED, KINDS

HRRS, PLAIN, FIFO, SHORTEST = "hrrs", "hrrs, not looking ahead", "fifo", "shortest-first"
Row = Mapping[str, Any]


def headlines_of(rows: Sequence[Row], decisions_per_s: float) -> dict[str, dict[str, Any]]:
    return {
        "mean_slowdown": _against(rows, "mean_slowdown", FIFO, 0.6),
        "mean_slowdown_of_closed_loads": _against([row for row in rows if row["kind"] in CLOSED], "mean_slowdown", FIFO, 0.6),
        "switches": _against(rows, "switches", FIFO, 0.9),
        "max_slowdown": _against(rows, "max_slowdown", SHORTEST, 1.1),
        "mean_slowdown_of_jobs": _against(rows, "mean_job_slowdown", FIFO, 1.0),
        "max_slowdown_of_jobs": _against(rows, "max_job_slowdown", SHORTEST, 1.1),
        "bounds_broken": _broken(rows),
        "decisions_per_s": headline(
            decisions_per_s, 1e5, "/s", "two deployments of one model, with the simulation round it; one core"
        ),
    }


def at_most(value: float, goal: float, unit: str, note: str) -> dict[str, Any]:
    return headline(value, goal, unit, note) | {"met": value <= goal}


def ratios_of(rows: Sequence[Row], system: str, figure: str, base: str, kind: str | None = None) -> dict[str, float]:
    """Of each load, the figure of a system over that of another one."""
    found = {(row["load"], row["system"]): row[figure] for row in rows if kind in (None, row["kind"])}
    return {load: value / found[load, base] for (load, name), value in found.items() if name == system}


def _against(rows: Sequence[Row], figure: str, base: str, goal: float) -> dict[str, Any]:
    ratios = ratios_of(rows, HRRS, figure, base)
    worst = max(ratios, key=lambda load: ratios[load])
    kinds = ", ".join(f"{kind} {_mean(rows, figure, base, kind):.2f}" for kind in KINDS if kind in {row["kind"] for row in rows})
    plain = geometric_mean(ratios_of(rows, PLAIN, figure, base).values())
    reached = sum(ratio <= goal for ratio in ratios.values())
    note = (
        f"geometric mean of {len(ratios)} loads, at most; {reached} of them reach it; {kinds}; "
        f"worst {ratios[worst]:.2f} ({worst}); not looking ahead {plain:.2f}"
    )
    return at_most(geometric_mean(ratios.values()), goal, f"x {base}", note)


def _mean(rows: Sequence[Row], figure: str, base: str, kind: str) -> float:
    return geometric_mean(ratios_of(rows, HRRS, figure, base, kind).values())


def _broken(rows: Sequence[Row]) -> dict[str, Any]:
    checked = [row for row in rows if row["broken_bounds"] is not None]
    note = f"overtakings in {sum(row['calls'] for row in checked)} calls that the bounds do not allow, at most"
    return at_most(float(sum(row["broken_bounds"] for row in checked)), 0, "overtakings", note)
