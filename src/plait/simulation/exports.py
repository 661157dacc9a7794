"""A result as CSV: figures, tasks or jobs, and timelines, one file each."""

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path

from plait.simulation.figures import figures_of
from plait.simulation.results import ScenarioResult
from plait.types.errors import ConfigError


def write_csv(result: ScenarioResult, folder: Path) -> list[Path]:
    """figures.csv (a row for each figure), works.csv (for each task or job), timeline.csv (for each bin). ConfigError if not."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return [
            _write(folder / "figures.csv", ["figure", "unit", *(system.name for system in result.systems)], _figures(result)),
            _write(folder / "works.csv", _WORK_COLUMNS, _works(result)),
            _write(folder / "timeline.csv", ["system", "kind", "name", "start_s", "bin_s", "value"], _timeline(result)),
        ]
    except OSError as error:
        raise ConfigError(f"cannot write to {folder}: {error.strerror}.", "Choose another folder with --csv.") from error


_WORK_COLUMNS = ["system", "name", "kind", "arrival_s", "start_s", "end_s", "steps", "slowdown", "device_hours"]


def _figures(result: ScenarioResult) -> Iterable[Sequence[object]]:
    for figure in figures_of(result.kind):
        yield [figure.key, figure.unit, *(system.figures.get(figure.key) for system in result.systems)]


def _works(result: ScenarioResult) -> Iterable[Sequence[object]]:
    for system in result.systems:
        for work in system.works:
            yield [system.name, *(getattr(work, column) for column in _WORK_COLUMNS[1:])]


def _timeline(result: ScenarioResult) -> Iterable[Sequence[object]]:
    for system in result.systems:
        lines = [("group", line.name, line.shares) for line in system.groups]
        lines += [("series", series.name, series.means) for series in system.series]
        for kind, name, values in lines:
            for number, value in enumerate(values):
                yield [system.name, kind, name, number * system.bin_s, system.bin_s, value]


def _write(path: Path, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Path:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(rows)
    return path
