"""From a scenario's TOML to settings. Every fault is told at once: its line, its key, its value, and what is allowed."""

import json
import tomllib
from importlib.resources import files
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from plait.config.problems import Location, describe_errors, find_non_finite, raise_problems
from plait.simulation.check_scenario import check_scenario
from plait.simulation.job_room import with_room
from plait.simulation.job_scenario import JobScenario
from plait.simulation.scenario import ScenarioSettings, TaskScenario
from plait.simulation.toml_lines import TomlLines
from plait.types.errors import ConfigError

KINDS: dict[str, type[ScenarioSettings]] = {"tasks": TaskScenario, "jobs": JobScenario}
MOST = 1e12
"""Of any number: seconds, bytes or tokens beyond it are a slip."""
KEYS = "docs/simulation-keys.md lists all keys."
Scenario = TaskScenario | JobScenario


def load_scenario(name: str, is_any_size: bool = False) -> Scenario:
    """A TOML file, or a shipped scenario by its name. `is_any_size`: the number of devices is what is looked for."""
    text, source = _read(name)
    return parse_scenario(text, source, Path(source).parent, is_any_size)


def parse_scenario(text: str, source: str = "scenario", folder: Path | None = None, is_any_size: bool = False) -> Scenario:
    """Files that it names are seen from `folder`, or from where the program was started."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{source} is not TOML: {error}.", "See toml.io, and docs/simulation.md.") from error
    lines = TomlLines(text)

    def origin(location: Location) -> str:
        number = lines.line_of(location)
        return "" if number is None else f" (line {number})"

    if not data:
        raise ConfigError(f"{source} is empty.", "docs/simulation.md has a scenario of each kind to start from.")
    _place_files(data, folder or Path())
    return _validate(data, source, origin, is_any_size)


def shipped_names() -> list[str]:
    return sorted(entry.name.removesuffix(".toml") for entry in _folder().iterdir() if entry.name.endswith(".toml"))


def shipped_title(name: str) -> str:
    return str(tomllib.loads(_shipped_text(name)).get("title", ""))


def _place_files(data: dict[str, Any], folder: Path) -> None:
    for table, key in (("model", "profile"), ("trace", "file")):
        named = data.get(table)
        if isinstance(named, dict) and isinstance(named.get(key), str) and named[key]:
            named[key] = str(folder / named[key])


def _validate(data: dict[str, Any], source: str, origin: Any, is_any_size: bool) -> Scenario:
    root = KINDS[_kind(data, source, origin)]
    if is_any_size and isinstance(data.get("cluster"), dict):
        data["cluster"].setdefault("devices", 1)
    raise_problems(list(find_non_finite(data, data, origin=origin, most=MOST)), source, KEYS)
    try:
        # Strict JSON takes arrays for tuples and integers for floats, as TOML means them, and coerces nothing else.
        settings: Any = root.model_validate_json(json.dumps(data, default=str), strict=True)
    except ValidationError as error:
        raise_problems(describe_errors(error, data, root, origin), source, KEYS)
        raise AssertionError("unreachable: a validation error has at least one problem") from error
    if is_any_size and isinstance(settings, JobScenario):
        settings = with_room(settings)
    raise_problems([problem + origin(location) for location, problem in check_scenario(settings)], source, KEYS)
    return settings


def _kind(data: dict[str, Any], source: str, origin: Any) -> str:
    """The file's; a ConfigError where it is none, or where the file has keys of the other one."""
    kind = data.get("kind", "tasks")
    if not isinstance(kind, str) or kind not in KINDS:
        raise_problems([f'kind = {json.dumps(kind, default=str)}: allowed are "tasks", "jobs"{origin(("kind",))}'], source, KEYS)
    other = next(name for name in KINDS if name != kind)
    if other in data and kind not in data:
        said = "is" if "kind" in data else "missing, so it is"
        problem = f'kind {said} "{kind}", and the file has [[{other}]]: give kind = "{other}"{origin((other,))}'
        raise_problems([problem], source, KEYS)
    foreign = KINDS[other].model_fields.keys() - KINDS[kind].model_fields.keys()
    belongs = f'belongs to kind = "{other}", and this file is of kind = "{kind}"'
    raise_problems([f"{key} {belongs}{origin((key,))}" for key in data if key in foreign], source, KEYS)
    return kind


def _read(name: str) -> tuple[str, str]:
    """(Text, what errors call it)."""
    path = Path(name)
    if not name or (not path.suffix and not path.exists()):
        return _shipped_text(name), name
    try:
        return path.read_text(encoding="utf-8"), name
    except OSError as error:
        shipped = path.name.removesuffix(".toml")
        hint = f'The shipped one is called "{shipped}"; ' if shipped in shipped_names() else ""
        raise ConfigError(
            f"cannot read {name}: {error.strerror}.", f"{hint}`plait simulate` lists the shipped scenarios; or give a TOML file."
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{name} is not UTF-8 text: {error.reason}.", "Save it as UTF-8.") from error


def _shipped_text(name: str) -> str:
    names = shipped_names()
    if name not in names:
        import difflib

        file = f"{name}.toml"
        near = [file] if name and Path(file).exists() else difflib.get_close_matches(name, names, n=1)
        hint = f'Did you mean "{near[0]}"? ' if near else ""
        raise ConfigError(f'there is no scenario "{name}".', f"{hint}Shipped are {', '.join(names)}; or give a TOML file.")
    return (_folder() / f"{name}.toml").read_text(encoding="utf-8")


def _folder() -> Any:
    return files("plait.simulation") / "scenarios"
