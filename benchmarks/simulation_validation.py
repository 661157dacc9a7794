"""Simulated `marlaas`, `seer` and `plexrl` against what this machine measured (benchmarks/results/).

- "marlaas" on the tiny model: taken from the measurements is the machine's profile: what a decode step takes by its rows, and what
  training a token takes (`simulation_profile`). Rows that it was taken from are told and not scored. Delays are
  calibrated as the real benchmark calibrates its own: a task alone keeps its rollout worker 22.5 % busy.
- "seer": what calls take by themselves, and how much slower each run was as a whole (`simulation_seer`).
- "plexrl": what each job takes alone, and nothing of what they do together (`simulation_plexrl`).
- "foreseen": `marlaas` on SmolLM2, with `plait profile` and nothing of the measured run (`simulation_foreseen`).
"""

from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks.simulation_foreseen import FIGURES, foresee
from benchmarks.simulation_found import Found, Row
from benchmarks.simulation_machine import (
    MARLAAS_NAMES,
    marlaas_delays_s,
    simulate_marlaas,
)
from benchmarks.simulation_plexrl import FIGURES as PLEXRL_FIGURES
from benchmarks.simulation_plexrl import TEXTS as PLEXRL_TEXTS
from benchmarks.simulation_plexrl import plexrl_rows
from benchmarks.simulation_profile import marlaas_profile
from benchmarks.simulation_scores import compared, headlines, measured
from benchmarks.simulation_seer import FIGURES as SEER_FIGURES
from benchmarks.simulation_seer import TEXTS as SEER_TEXTS
from benchmarks.simulation_seer import seer_rows

PROFILED_TASKS = (1, 32)
"""What the profile of `marlaas` was taken from."""
TEXTS = (
    "Foreseen: costs of `plait profile`, the benchmark's own tasks and drawn delays. No measured figure is fitted.",
    "Foreseen: every group is taken to have a gradient; in the real run some had none and cost the trainer nothing.",
    "Profile of marlaas on the tiny model: what 1 and 32 tasks of Plait kept both workers busy for. All else is predicted.",
    "Not in the profile of marlaas: what the controller, environments and messages take of the two cores. A prompt's token is "
    "taken to cost a quarter of a row.",
    *SEER_TEXTS,
    *PLEXRL_TEXTS,
)


def run_validation(is_quick: bool) -> Found:
    parts: dict[str, tuple[list[Row], Sequence[str]]] = {
        "marlaas": (list(_marlaas(is_quick)), FIGURES[:2]),
        "seer": (list(seer_rows(is_quick)), SEER_FIGURES),
        "plexrl": (list(plexrl_rows()), PLEXRL_FIGURES),
        "foreseen": (list(_foreseen()), FIGURES[:2]),
    }
    lines: dict[str, dict[str, Any]] = {}
    for name, (rows, figures) in parts.items():
        lines |= headlines(name, rows, figures)
    told = [row for rows, _ in parts.values() for row in rows]
    return Found([*told, *({"kind": "assumption", "text": text} for text in TEXTS)], lines)


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
            yield compared(case, row["system"], figure, row[figure], simulated[figure], is_fitted)


def _foreseen() -> Iterator[Row]:
    for case, row, simulated in foresee(measured("marlaas-real-model")):
        for figure in FIGURES:
            yield compared(case, row["system"], figure, row[figure], simulated[figure])
