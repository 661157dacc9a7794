"""What is wrong with a settings file, in words: the key as its author wrote it, the value, and what is allowed."""

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from plait.config.base import Settings
from plait.config.known_keys import ENVIRONMENTS, settings_at, suggest_key, suggest_value
from plait.config.run import RunSettings
from plait.types.errors import ConfigError

Location = Sequence[str | int]
Origin = Callable[[Location], str]
"""What to say of where the value at a location comes from."""
MAX_VALUE_CHARACTERS = 80

_ALLOWED: dict[str, Callable[[dict[str, Any]], str]] = {
    "greater_than": lambda context: f"must be greater than {context['gt']}",
    "greater_than_equal": lambda context: f"must be at least {context['ge']}",
    "less_than": lambda context: f"must be less than {context['lt']}",
    "less_than_equal": lambda context: f"must be at most {context['le']}",
    "too_short": lambda context: f"needs at least {context['min_length']} of them",
    "string_pattern_mismatch": lambda context: _PATTERNS.get(context["pattern"], f"must match {context['pattern']}"),
    "string_too_short": lambda _: "must not be empty",
    "int_type": lambda _: "must be a whole number",
    "int_from_float": lambda _: "must be a whole number",
    "float_type": lambda _: "must be a number",
    "bool_type": lambda _: "must be true or false",
    "string_type": lambda _: "must be a string, in quotes",
    "tuple_type": lambda _: "must be a list, in [ ]",
    "model_type": lambda _: "must be a table",
    "dict_type": lambda _: "must be a table",
}
"""What would be accepted, by pydantic's type of error; others keep pydantic's message."""

_PATTERNS: dict[str, str] = {
    r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$": "at most 64 letters, digits, dots, _ and - are allowed, a letter or digit first",
    r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$": "at most 64 letters, digits, _ and - are allowed, a letter or digit first",
    r"^[^\s\"']+$": "no spaces and quotes are allowed",
}
_MISSING: dict[str, str] = {
    "tasks": "there must be one [[tasks]] at least",
    "environment": f"give a table with one of the kinds {', '.join(ENVIRONMENTS)}",
}


def describe_errors(
    error: ValidationError,
    data: Mapping[str, Any],
    root: type[Settings] = RunSettings,
    origin: Origin = lambda _: "",
) -> list[str]:
    """One line for each fault of `data`, which was to become a `root`; each ends with `origin` of its location."""
    faults = [details for details in error.errors(include_url=False) if not _is_echo(details)]
    return [_describe(details, data, root) + origin(details["loc"]) for details in faults]


def raise_problems(problems: Sequence[str], source: str, remedy: str = "") -> None:
    """One ConfigError for all of them, if there are any."""
    if not problems:
        return
    if len(problems) == 1:
        raise ConfigError(f"{source}: {problems[0]}{'' if problems[0].endswith('?') else '.'}", remedy)
    listed = "".join(f"\n  - {problem}" for problem in problems)
    raise ConfigError(f"{source} has {len(problems)} faults:{listed}", remedy)


def find_non_finite(
    value: Any,
    data: Mapping[str, Any],
    location: tuple[str | int, ...] = (),
    origin: Origin = lambda _: "",
    most: float = math.inf,
) -> Iterator[str]:
    """TOML has `nan` and `inf`, which no setting allows, and whole numbers of any length: above `most` they are a slip."""
    if isinstance(value, float) and not math.isfinite(value):
        yield f"{key_path(location, data)} = {value}: give a finite number{origin(location)}"
    elif isinstance(value, int | float) and value > most:
        yield f"{key_path(location, data)} = {_shown(value)}: must be at most {most:,.0f}{origin(location)}"
    items = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from find_non_finite(item, data, (*location, key), origin, most)


def key_path(location: Location, data: Mapping[str, Any]) -> str:
    """`("tasks", 0, "optimizer", "learning_rate")` as `tasks[0] (name "add").optimizer.learning_rate`."""
    text = ""
    value: Any = data
    for part in location:
        if isinstance(part, str):
            text += f".{part}" if text else part
            value = value.get(part) if isinstance(value, Mapping) else None
        else:
            value = value[part] if isinstance(value, list) else None
            name = value.get("name") if isinstance(value, Mapping) else None
            text += f"[{part}]" + (f' (name "{name}")' if isinstance(name, str) else "")
    return text


def _describe(details: ErrorDetails, data: Mapping[str, Any], root: type[Settings]) -> str:
    location = _user_location(details["loc"])
    key = key_path(location, data)
    context: dict[str, Any] = details.get("ctx", {})
    match details["type"]:
        case "extra_forbidden":
            return f"{key} = {_shown(details['input'])}: unknown key{suggest_key(location, data, root)}"
        case "missing":
            return f"{key} is missing: {_meaning(location, data, root)}"
        case "value_error":
            return f"{key}: {context['error']}" if key else str(context["error"])
        case "union_tag_not_found":
            return f"{key}.kind is missing: allowed are {_listed(tuple(ENVIRONMENTS))}"
        case "union_tag_invalid":
            return f"{key}.kind = {_shown(context['tag'])}: {_one_of(context['tag'], tuple(ENVIRONMENTS))}"
        case "literal_error":
            allowed_values = re.findall(r"'([^']*)'", context["expected"])
            return f"{key} = {_shown(details['input'])}: {_one_of(details['input'], allowed_values)}"
        case "tuple_type" if isinstance(details["input"], Mapping):
            return f"{key} is one table: write each under [[{location[-1]}]], with two brackets"
        case kind:
            allowed = _ALLOWED[kind](context) if kind in _ALLOWED else details["msg"]
            return f"{key} = {_shown(details['input'])}: {allowed}"


def _is_echo(details: ErrorDetails) -> bool:
    """A list all of whose items are faulty is also reported as too short."""
    return details["type"] == "too_short" and bool(details["input"])


def _user_location(location: Location) -> Location:
    """Without the tag that pydantic puts after the environment's key."""
    is_tagged = len(location) > 3 and location[0] == "tasks" and location[2] == "environment"
    return (*location[:3], *location[4:]) if is_tagged else location


def _shown(value: Any) -> str:
    """The value as TOML would have it, shortened."""
    text = json.dumps(value) if isinstance(value, str | bool | list | dict) else str(value)
    return text if len(text) <= MAX_VALUE_CHARACTERS else text[: MAX_VALUE_CHARACTERS - 3] + "..."


def _one_of(value: Any, allowed: Sequence[str]) -> str:
    return f"allowed {'is' if len(allowed) == 1 else 'are'} {_listed(allowed)}{suggest_value(value, allowed)}"


def _listed(values: Sequence[str]) -> str:
    return ", ".join(f'"{value}"' for value in values)


def _meaning(location: Location, data: Mapping[str, Any], root: type[Settings]) -> str:
    """The first sentence of the missing key's own documentation."""
    if location[-1] in _MISSING:
        return _MISSING[str(location[-1])]
    owner = settings_at(location[:-1], data, root)
    field = owner.model_fields.get(str(location[-1])) if owner else None
    return (field.description or "").partition(". ")[0].rstrip(".") or "give it a value" if field else "give it a value"
