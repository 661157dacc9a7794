"""On which line of a TOML text each value begins: parsers keep no positions, and an error should name one.

A statement is complete as soon as it parses, so strings and arrays over several lines need no scanner of their own.
"""

import re
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

Location = tuple[str | int, ...]
_HEADER = re.compile(r"\s*(\[{1,2})\s*([^\[\]]+?)\s*\]{1,2}\s*(#.*)?$")


class TomlLines:
    """Of a text that parses."""

    def __init__(self, text: str) -> None:
        self._lines: dict[Location, int] = {}
        self._counts: dict[Location, int] = {}
        """How often each array of tables has been begun."""
        self._scan(text.splitlines())

    def line_of(self, location: Sequence[str | int]) -> int | None:
        """Of the value, or of what holds it; None for the text as a whole. Lines start at 1."""
        place = tuple(location)
        while place and place not in self._lines:
            place = place[:-1]
        return self._lines.get(place)

    def _scan(self, lines: Sequence[str]) -> None:
        table: Location = ()
        number = 0
        while number < len(lines):
            start = number
            number += 1
            if not lines[start].strip() or lines[start].lstrip().startswith("#"):
                continue
            if header := _HEADER.match(lines[start]):
                table = self._enter(_path(header[2]), is_array=header[1] == "[[", number=start + 1)
                continue
            while (value := _parsed("\n".join(lines[start:number]))) is None and number < len(lines):
                number += 1
            self._note(table, value or {}, start + 1)

    def _enter(self, path: Sequence[str], is_array: bool, number: int) -> Location:
        place: Location = ()
        for part in path[:-1]:
            place = (*place, part)
            if place in self._counts:
                place = (*place, self._counts[place] - 1)
        place = (*place, path[-1])
        self._lines.setdefault(place, number)
        if is_array:
            self._counts[place] = self._counts.get(place, 0) + 1
            place = (*place, self._counts[place] - 1)
            self._lines[place] = number
        return place

    def _note(self, place: Location, value: Any, number: int) -> None:
        self._lines.setdefault(place, number) if place else None
        items = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
        for key, item in items:
            self._note((*place, key), item, number)


def _parsed(text: str) -> dict[str, Any] | None:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return None


def _path(dotted: str) -> list[str]:
    """`a."b.c"` as its keys."""
    value: Any = tomllib.loads(f"{dotted} = 0")
    keys = []
    while isinstance(value, Mapping):
        key, value = next(iter(value.items()))
        keys.append(key)
    return keys
