"""Choosing a function by the name a setting gives it; a wrong name is an error, never a silent default."""

import difflib
from collections.abc import Mapping
from typing import TypeVar

from plait.types.errors import ConfigError

Choice = TypeVar("Choice")


def choose(field: str, name: str, choices: Mapping[str, Choice]) -> Choice:
    """`choices[name]`. Raises ConfigError that names the field, the value and the nearest choice."""
    if name in choices:
        return choices[name]
    nearest = difflib.get_close_matches(name, choices, n=1)
    hint = f"Did you mean {nearest[0]!r}?" if nearest else f"Use one of {', '.join(sorted(choices))}."
    raise ConfigError(f"{field} {name!r} is unknown.", hint)
