"""The report's tables, as texts."""

import msgspec

from plait.observe.text import duration
from plait.simulation.distribution import Summary
from plait.simulation.figures import Figure, figures_of
from plait.simulation.results import ScenarioResult, SystemResult, WorkRow

MAX_WORKS = 300
"""Rows of a table of tasks or jobs; the slowest are shown."""
CLOSE = 0.02
"""Values within this share of the best one are as good."""


class Tile(msgspec.Struct, frozen=True):
    system: str
    value: str
    label: str
    against: str


class Cell(msgspec.Struct, frozen=True):
    text: str
    ratio: str
    is_best: bool


class Row(msgspec.Struct, frozen=True):
    label: str
    meaning: str
    cells: tuple[Cell, ...]


class WaitTable(msgspec.Struct, frozen=True):
    name: str
    rows: tuple[tuple[str, ...], ...]


class WorkTable(msgspec.Struct, frozen=True):
    system: str
    num: int
    rows: tuple[tuple[str, ...], ...]


def tiles(result: ScenarioResult) -> list[Tile]:
    """What each system comes to, in one figure."""
    key = "steps_per_hour" if result.kind == "tasks" else "device_hours_per_step"
    figure = next(figure for figure in figures_of(result.kind) if figure.key == key)
    first = result.systems[0]
    found = []
    for system in result.systems:
        ratio = figure.ratio(system.figures.get(key), first.figures.get(key)) if system is not first else ""
        against = f"{ratio} of {first.name}" if ratio else ""
        found.append(Tile(system.name, figure.text(system.figures.get(key)), figure.label, against))
    return found


def comparison(result: ScenarioResult) -> list[Row]:
    """A row for each figure that any system has."""
    rows = []
    for figure in figures_of(result.kind):
        values = [system.figures.get(figure.key) for system in result.systems]
        if any(value is not None for value in values):
            rows.append(Row(figure.label, figure.meaning, tuple(_cells(figure, values))))
    return rows


def _cells(figure: Figure, values: list[float | None]) -> list[Cell]:
    known = [value for value in values if value is not None]
    best = {"higher": max, "lower": min}.get(figure.better)
    differ = len({figure.text(value) for value in known}) > 1 and max(known) - min(known) > CLOSE * abs(max(known))
    mark = best(known) if best and differ else None
    cells = []
    for number, value in enumerate(values):
        is_best = mark is not None and value is not None and abs(value - mark) <= CLOSE * abs(mark)
        cells.append(Cell(figure.text(value), figure.ratio(value, values[0]) if number else "", is_best))
    return cells


def wait_tables(result: ScenarioResult) -> list[WaitTable]:
    """Distributions, with a row for each system."""
    names = list(dict.fromkeys(name for system in result.systems for name in system.waits))
    found = []
    for name in names:
        rows = [(system.name, *_summary(name, system.waits[name])) for system in result.systems if name in system.waits]
        found.append(WaitTable(name, tuple(rows)))
    return found


def _summary(name: str, summary: Summary) -> tuple[str, ...]:
    show = (lambda value: f"{value:.2f}") if name == "slowdown" else duration
    return (f"{summary.count:,}", *(show(value) for value in (summary.mean, summary.median, summary.p95, summary.largest)))


def work_tables(result: ScenarioResult) -> list[WorkTable]:
    return [_work_table(system) for system in result.systems]


def _work_table(system: SystemResult) -> WorkTable:
    works = system.works
    if len(works) > MAX_WORKS:
        slowest = sorted(works, key=lambda work: -(work.slowdown or float("inf")))[:MAX_WORKS]
        works = tuple(work for work in works if work in set(slowest))
    return WorkTable(system.name, len(system.works), tuple(_work(work) for work in works))


def _work(work: WorkRow) -> tuple[str, ...]:
    return (
        work.name,
        duration(work.arrival_s),
        "-" if work.start_s is None else duration(work.start_s),
        "-" if work.end_s is None else duration(work.end_s),
        f"{work.steps:,}",
        "-" if work.slowdown is None else f"{work.slowdown:.2f}",
        "-" if work.device_hours is None else f"{work.device_hours:,.1f}",
    )
