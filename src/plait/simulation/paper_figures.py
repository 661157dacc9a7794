"""What a paper printed of the systems that a scenario simulates, beside what the simulation gives. Pure.

Where a paper prints a range, the difference is 0 inside it, and to its nearer end outside.
"""

from collections.abc import Iterable, Mapping
from typing import Literal

from pydantic import model_validator

from plait.config.base import Settings
from plait.simulation.comparison import Comparison

Figures = Mapping[str, float | None]


class PaperFigure(Settings):
    """One number of a paper's table."""

    what: str
    """What it is called in the table."""
    figure: str
    """A figure of the results, by its key in their JSON."""
    system: str
    """Of which system."""
    over: str = ""
    """The system that it is compared with; left out: none."""
    reads: Literal["value", "ratio", "inverse", "saved"] = "ratio"
    """"ratio": over the other; "inverse": the other over this one; "saved": the share by which it is less; "value": itself."""
    low: float
    """What the paper has."""
    high: float | None = None
    """The upper end, where it has a range."""

    @model_validator(mode="after")
    def _fits(self) -> "PaperFigure":
        if (self.reads == "value") == bool(self.over):
            raise ValueError('give `over` with "ratio", "inverse" and "saved", and only with them')
        if self.high is not None and self.high < self.low:
            raise ValueError(f"high = {self.high} is below low = {self.low}")
        return self


def compare(figures: Iterable[PaperFigure], found: Mapping[str, Figures]) -> tuple[Comparison, ...]:
    """`found`: figures by system."""
    return tuple(_compare(figure, found[figure.system].get(figure.figure), _other(figure, found)) for figure in figures)


def _other(figure: PaperFigure, found: Mapping[str, Figures]) -> float | None:
    return found[figure.over].get(figure.figure) if figure.over else None


def _compare(figure: PaperFigure, mine: float | None, other: float | None) -> Comparison:
    high = figure.low if figure.high is None else figure.high
    ours = _read(figure, mine, other)
    if ours is None:
        return Comparison(figure.what, figure.low, high, None, None)
    nearer = min(max(ours, figure.low), high)
    return Comparison(figure.what, figure.low, high, ours, (ours - nearer) / abs(nearer) if nearer else ours)


def _read(figure: PaperFigure, mine: float | None, other: float | None) -> float | None:
    if mine is None or figure.reads == "value":
        return mine
    if not other or not mine:
        return None
    return {"ratio": mine / other, "inverse": other / mine, "saved": 1 - mine / other}[figure.reads]
