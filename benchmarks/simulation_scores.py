"""Simulated figures against measured ones: rows, and what share of them is right. Pure but for reading results."""

import json
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

from benchmarks.common import headline
from benchmarks.simulation_found import Row

RESULTS = Path(__file__).parent / "results"
TOLERANCE = 0.15
TIE = 0.05
"""Measured values that are nearer to each other have no order."""


def measured(name: str, folder: Path = RESULTS) -> list[dict[str, Any]]:
    found: dict[str, Any] = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    return list(found["rows"])


def compared(case: str, system: str, figure: str, real: float, simulated: float, is_fitted: bool = False) -> Row:
    return {
        "kind": "validation", "case": case, "system": system, "figure": figure, "measured": float(f"{real:.6g}"),
        "simulated": float(f"{simulated:.6g}"), "difference": float(f"{simulated / real - 1:.4g}"), "fitted": is_fitted,
    }  # fmt: skip


def headlines(name: str, rows: Sequence[Row], figures: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Of those that nothing was fitted to. The order of systems is that of the first figure."""
    mine = [row for row in rows if row["figure"] in figures and not row["fitted"]]
    within = [abs(row["difference"]) <= TOLERANCE for row in mine]
    worst = max(mine, key=lambda row: abs(row["difference"]))
    note = f"{sum(within)} of {len(within)}; worst: {worst['case']}, {worst['system']}, {worst['difference']:+.0%}"
    return {
        f"{name}_within_15_percent": headline(sum(within) / len(within), 1, "share of figures", note),
        f"{name}_orderings": headline(same_order(mine, figures[0]), 1, f"share of pairs more than {TIE:.0%} apart"),
    }


def same_order(rows: Sequence[Row], figure: str) -> float:
    """Of pairs of systems of a case."""
    cases: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        if row["figure"] == figure:
            cases.setdefault(row["case"], []).append(row)
    pairs = [
        (one["measured"] < other["measured"]) == (one["simulated"] < other["simulated"])
        for members in cases.values()
        for one, other in combinations(members, 2)
        if abs(one["measured"] / other["measured"] - 1) > TIE
    ]
    return sum(pairs) / len(pairs) if pairs else 1.0
