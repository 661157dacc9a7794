"""A paper's figure and ours."""

import msgspec


class Comparison(msgspec.Struct, frozen=True):
    """`ours` and `difference` are None where the simulation has no such figure."""

    what: str
    low: float
    high: float
    ours: float | None
    difference: float | None
    """Relative to the nearer end of what the paper has."""

    @property
    def paper_text(self) -> str:
        return f"{self.low:.4g}" if self.low == self.high else f"{self.low:.4g} to {self.high:.4g}"
