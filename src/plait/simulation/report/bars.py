"""The figures that matter most, as bars: one set for each figure, one bar for each system."""

import msgspec

from plait.simulation.figures import Figure, figures_of
from plait.simulation.results import ScenarioResult

GLANCE = {
    "tasks": (
        "steps_per_hour", "device_hours_per_step", "utilisation", "slowdown_mean", "first_step_s", "tail_s", "kv_mean", "cost",
    ),
    "jobs": (
        "device_hours_per_step", "busy_share", "queue_mean_s", "slowdown_max", "late", "call_wait_s", "makespan_s", "cost",
    ),
}  # fmt: skip
"""By the scenario's kind: what a user waits for, what an owner pays, and why."""


class Bar(msgspec.Struct, frozen=True):
    system: str
    text: str
    percent: float
    """Of the longest bar."""


class BarSet(msgspec.Struct, frozen=True):
    label: str
    meaning: str
    better: str
    """"more is better", "less is better", or nothing."""
    bars: tuple[Bar, ...]


def bar_sets(result: ScenarioResult) -> list[BarSet]:
    """Figures that no system has, or that are 0 everywhere, are left out."""
    known = {figure.key: figure for figure in figures_of(result.kind)}
    found = [_bars(known[key], result) for key in GLANCE[result.kind]]
    return [bars for bars in found if any(bar.percent for bar in bars.bars)]


def _bars(figure: Figure, result: ScenarioResult) -> BarSet:
    values = [system.figures.get(figure.key) for system in result.systems]
    longest = max((value for value in values if value is not None), default=0.0) or 1.0
    better = {"higher": "more is better", "lower": "less is better"}.get(figure.better, "")
    bars = tuple(
        Bar(system.name, figure.text(value), round(100 * (value or 0.0) / longest, 1))
        for system, value in zip(result.systems, values, strict=True)
    )
    return BarSet(figure.label, figure.meaning, better, bars)
