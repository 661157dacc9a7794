"""Simulated `marlaas` and `seer` against what this machine measured (benchmarks/results/).

- "marlaas" on the tiny model, and "seer": taken from the measurements is the machine's profile: what a decode step takes by its
  rows, and what training a token takes (`simulation_profile`). Rows that it was taken from are told and not scored. Delays are
  calibrated as the real benchmark calibrates its own: a task alone keeps its rollout worker 22.5 % busy.
- "foreseen": `marlaas` on SmolLM2, with `plait profile` and nothing of the measured run (`simulation_foreseen`).
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

from benchmarks.common import headline
from benchmarks.simulation_foreseen import FIGURES, foresee
from benchmarks.simulation_found import Found, Row
from benchmarks.simulation_machine import MARLAAS_NAMES, SEER_CASES, marlaas_delays_s, simulate_marlaas, simulate_seer
from benchmarks.simulation_profile import marlaas_profile, seer_profile

RESULTS = Path(__file__).parent / "results"
TOLERANCE = 0.15
PROFILED_TASKS, PROFILED_SYSTEMS, PROFILED_SHARE = (1, 32), ("pinned groups", "+ divided"), 2.0
"""What the profiles were taken from."""
TIE = 0.05
"""Measured values that are nearer to each other have no order."""
TEXTS = (
    "Foreseen: costs of `plait profile`, the benchmark's own tasks and drawn delays. No measured figure is fitted.",
    "Foreseen: every group is taken to have a gradient; in the real run some had none and cost the trainer nothing.",
    "Profile of marlaas on the tiny model: what 1 and 32 tasks of Plait kept both workers busy for. All else is predicted.",
    "Profile of seer: pinned groups with ample memory, and what division costs one engine that has it. All else is predicted.",
    "Not in the profile: what the controller, environments and messages take of the two cores.",
    "A prompt's token is taken to cost a quarter of a row.",
)


def run_validation(is_quick: bool) -> Found:
    rows = [*_marlaas(is_quick), *_seer(is_quick), *_foreseen()]
    return Found([*rows, *({"kind": "assumption", "text": text} for text in TEXTS)], _headlines(rows))


def measured(name: str) -> list[dict[str, Any]]:
    found: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return list(found["rows"])


def _marlaas(is_quick: bool) -> Iterator[Row]:
    found = measured("marlaas-agentic")
    costs = marlaas_profile(found)
    delays_s = marlaas_delays_s(costs)
    for row in found:
        if is_quick and row["tasks"] not in (1, 8):
            continue
        simulated = simulate_marlaas(costs, delays_s, MARLAAS_NAMES[row["system"]], range(row["tasks"]))
        is_fitted = row["system"] == "plait" and row["tasks"] in PROFILED_TASKS
        for figure in FIGURES:
            case = f"marlaas, {row['tasks']} tasks"
            yield _compared(case, row["system"], figure, row[figure], simulated[figure], is_fitted)


def _foreseen() -> Iterator[Row]:
    for case, row, simulated in foresee(measured("marlaas-real-model")):
        for figure in FIGURES:
            yield _compared(case, row["system"], figure, row[figure], simulated[figure])


def _seer(is_quick: bool) -> Iterator[Row]:
    found = measured("seer")
    costs = seer_profile(found)
    for row in found:
        if (
            row.get("case") not in SEER_CASES
            or "system" not in row
            or "drafting" in row["system"]
            or (is_quick and row["cache_share"] != 0.3)
        ):
            continue
        simulated = simulate_seer(costs, row["case"], row["system"], row["engines"], row["cache_share"])
        case = f"seer, {row['case']}, cache {row['cache_share']:.0%}"
        for figure in ("tokens_per_s", "completion_s", "last_tenth_s"):
            is_fitted = row["system"] in PROFILED_SYSTEMS and row["cache_share"] == PROFILED_SHARE
            yield _compared(case, row["system"], figure, row[figure], simulated[figure], is_fitted)


def _compared(case: str, system: str, figure: str, real: float, simulated: float, is_fitted: bool = False) -> Row:
    return {
        "kind": "validation", "case": case, "system": system, "figure": figure, "measured": float(f"{real:.6g}"),
        "simulated": float(f"{simulated:.6g}"), "difference": float(f"{simulated / real - 1:.4g}"), "fitted": is_fitted,
    }  # fmt: skip


def _headlines(rows: Sequence[Row]) -> dict[str, dict[str, Any]]:
    found = {}
    scored = [row for row in rows if not row["fitted"]]
    for name, is_mine, figures in (
        ("marlaas", lambda case: case.startswith("marlaas") and not case.endswith("foreseen"), FIGURES[:2]),
        ("seer", lambda case: case.startswith("seer"), ("tokens_per_s", "completion_s")),
        ("foreseen", lambda case: case.endswith("foreseen"), FIGURES[:2]),
    ):
        mine = [row for row in scored if is_mine(row["case"]) and row["figure"] in figures]
        within = [abs(row["difference"]) <= TOLERANCE for row in mine]
        worst = max(mine, key=lambda row: abs(row["difference"]))
        note = f"worst: {worst['case']}, {worst['system']}, {worst['difference']:+.0%}"
        found[f"{name}_within_15_percent"] = headline(sum(within) / len(within), 1, "share of figures", note)
        found[f"{name}_orderings"] = headline(_same_order(mine, figures[0]), 1, f"share of pairs more than {TIE:.0%} apart")
    return found


def _same_order(rows: Sequence[Row], figure: str) -> float:
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
