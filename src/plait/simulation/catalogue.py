"""Entries of the shipped tables of accelerators and models, looked up by name."""

import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from typing import Any, TypeVar

import msgspec

from plait.types.errors import ConfigError

Entry = TypeVar("Entry", bound=msgspec.Struct)


def look_up(table: str, kind: type[Entry], name: str, field: str) -> Entry:
    """The entry `name` of `data/TABLE.toml`. ConfigError naming `field`, the value and the nearest names if there is none."""
    entries = read_table(table)
    if name not in entries:
        near = get_close_matches(name, entries, n=1, cutoff=0.3)
        hint = f'Did you mean "{near[0]}"? ' if near else ""
        raise ConfigError(f'{field} = "{name}" is not known.', f"{hint}Known are {', '.join(sorted(entries))}.")
    return msgspec.convert({"name": name, **entries[name]}, kind)


@cache
def read_table(table: str) -> Mapping[str, Any]:
    return tomllib.loads((files("plait.simulation") / "data" / f"{table}.toml").read_text(encoding="utf-8"))
