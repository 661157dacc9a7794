"""What a part of the simulation benchmark found, as rows of several kinds.

"system": `system` and its figures; "paper": `what`, `low`, `high`, `ours`, `difference`; "assumption": `text`; "sensitivity":
`assumption`, and the headline under it as `value`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from plait.simulation.results import ScenarioResult

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Found:
    rows: Sequence[Row]
    headline: Mapping[str, Mapping[str, Any]]

    def of(self, kind: str) -> list[Row]:
        return [row for row in self.rows if row["kind"] == kind]


def rows_of(result: ScenarioResult) -> Iterator[Row]:
    """Of a scenario's result, but for its sensitivity."""
    for system in result.systems:
        yield {"kind": "system", "system": system.name, **_rounded(system.figures)}
    for row in result.paper:
        numbers = {"low": row.low, "high": row.high, "ours": row.ours, "difference": row.difference}
        yield {"kind": "paper", "what": row.what, **_rounded(numbers)}
    for text in result.assumptions:
        yield {"kind": "assumption", "text": text}


def _rounded(figures: Mapping[str, float | None]) -> dict[str, float | None]:
    """To six digits: files are to be read."""
    return {name: None if value is None else float(f"{value:.6g}") for name, value in figures.items() if value is not None}
