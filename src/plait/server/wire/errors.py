"""What is wrong with what a client sent."""

import difflib
from collections.abc import Collection

from plait.types.errors import PlaitError


class WireError(PlaitError):
    """A request's body is malformed or its values do not fit: the client's fault, always.

    `datum_index` and `field` say where, and are part of the message; None and "" where the whole body is meant.
    """

    def __init__(self, message: str, remedy: str = "", datum_index: int | None = None, field: str = "") -> None:
        place = ", ".join([f"datum {datum_index}"] * (datum_index is not None) + [field] * bool(field))
        super().__init__(f"{place}: {message}" if place else message, remedy)
        self.datum_index = datum_index
        self.field = field


def nearest_of(name: str, known: Collection[str]) -> str:
    """A sentence that names the known name closest to `name`, or all of them."""
    if near := difflib.get_close_matches(name, known, n=1):
        return f"Did you mean {near[0]!r}?"
    return f"Known: {', '.join(sorted(known))}." if known else "None is known here."
