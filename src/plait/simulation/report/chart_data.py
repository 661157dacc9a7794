"""What the charts of a simulation's report draw. Thinned, so that a page stays small however long the simulation was."""

from collections.abc import Sequence
from typing import Any

from plait.simulation.results import ScenarioResult, SystemResult

MAX_BINS = 256
"""Of a line; neighbouring bins are drawn as one."""
MAX_SPANS = 100
"""Tasks or jobs of a system that are drawn over time; of more, some in even steps of arrival."""
MAX_WORKS = 400
"""Points of a curve over tasks or jobs."""


def chart_data(result: ScenarioResult) -> dict[str, Any]:
    return {
        "end": max((system.end_s for system in result.systems), default=0.0),
        "noun": "task" if result.kind == "tasks" else "job",
        "systems": [system.name for system in result.systems],
        "lanes": [lane for system in result.systems for lane in _lanes(system)],
        "series": _series(result),
        "kinds": _kinds(result),
        "spans": [
            {"system": system.name, "end": system.end_s, "total": len(system.works), "works": _spans(system)}
            for system in result.systems
        ],
        "slowdowns": [{"system": system.name, "values": _slowdowns(system)} for system in result.systems],
    }


def thin(values: Sequence[float], bin_s: float) -> tuple[list[float], float]:
    """(Means of as many neighbours as it takes to have MAX_BINS at most, width of a bin)."""
    stride = max(1, -(-len(values) // MAX_BINS))
    chunks = [values[start : start + stride] for start in range(0, len(values), stride)]
    return [round(sum(chunk) / len(chunk), 4) for chunk in chunks], bin_s * stride


def _lanes(system: SystemResult) -> list[dict[str, Any]]:
    lanes = []
    for group in system.groups:
        shares, bin_s = thin(group.shares, system.bin_s)
        lane = {"system": system.name, "name": group.name, "devices": group.num_devices}
        lanes.append(lane | {"bin": bin_s, "end": system.end_s, "shares": shares})
    return lanes


def _series(result: ScenarioResult) -> list[dict[str, Any]]:
    """A chart for each name, with a line for each system."""
    names = list(dict.fromkeys(series.name for system in result.systems for series in system.series))
    charts = []
    for name in names:
        lines = []
        for system in result.systems:
            found = next((series for series in system.series if series.name == name), None)
            means, bin_s = thin(found.means if found else (), system.bin_s)
            points = [[round(min((number + 0.5) * bin_s, system.end_s), 3), mean] for number, mean in enumerate(means)]
            lines.append({"system": system.name, "points": points})
        charts.append({"name": name, "unit": name.partition(" ")[0], "is_share": name == "caches reserved", "lines": lines})
    return charts


def _kinds(result: ScenarioResult) -> list[str]:
    return list(dict.fromkeys(work.kind for system in result.systems for work in system.works))


def _spans(system: SystemResult) -> list[dict[str, Any]]:
    """In order of arrival."""
    works = sorted(system.works, key=lambda work: (work.arrival_s, work.name))
    kept = [works[number * len(works) // MAX_SPANS] for number in range(MAX_SPANS)] if len(works) > MAX_SPANS else works
    return [
        {
            "name": work.name, "kind": work.kind, "arrival": round(work.arrival_s, 3), "start": _rounded(work.start_s),
            "end": _rounded(work.end_s), "slowdown": _rounded(work.slowdown), "steps": work.steps,
        }
        for work in kept
    ]  # fmt: skip


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def _slowdowns(system: SystemResult) -> list[list[float]]:
    """(Percent of tasks or jobs, slowdown that so many do not exceed)."""
    found = sorted(work.slowdown for work in system.works if work.slowdown is not None)
    stride = max(1, -(-len(found) // MAX_WORKS))
    kept = [number for number in range(len(found)) if number % stride == 0 or number == len(found) - 1]
    return [[round(100 * (number + 1) / len(found), 2), round(found[number], 4)] for number in kept]
