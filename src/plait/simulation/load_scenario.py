"""From a scenario's TOML to settings. Every fault is told at once: its line, its key, its value, and what is allowed."""

import json
import tomllib
from importlib.resources import files
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from plait.config.problems import Location, describe_errors, find_non_finite, raise_problems
from plait.simulation.check_scenario import check_scenario
from plait.simulation.job_scenario import JobScenario
from plait.simulation.scenario import ScenarioSettings, TaskScenario
from plait.simulation.toml_lines import TomlLines
from plait.types.errors import ConfigError

KINDS: dict[str, type[ScenarioSettings]] = {"tasks": TaskScenario, "jobs": JobScenario}
Scenario = TaskScenario | JobScenario


def load_scenario(name: str) -> Scenario:
    """A TOML file, or a shipped scenario by its name."""
    text, source = _read(name)
    return parse_scenario(text, source, Path(source).parent)


def parse_scenario(text: str, source: str = "scenario", folder: Path | None = None) -> Scenario:
    """Files that it names are seen from `folder`, or from where the program was started."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{source} is not TOML: {error}.", "See toml.io, and docs/simulation.md.") from error
    lines = TomlLines(text)

    def origin(location: Location) -> str:
        number = lines.line_of(location)
        return "" if number is None else f" (line {number})"

    _place_files(data, folder or Path())
    return _validate(data, source, origin)


def shipped_names() -> list[str]:
    return sorted(entry.name.removesuffix(".toml") for entry in _folder().iterdir() if entry.name.endswith(".toml"))


def shipped_title(name: str) -> str:
    return str(tomllib.loads(_shipped_text(name)).get("title", ""))


def _place_files(data: dict[str, Any], folder: Path) -> None:
    model = data.get("model")
    if isinstance(model, dict) and isinstance(model.get("profile"), str) and model["profile"]:
        model["profile"] = str(folder / model["profile"])


def _validate(data: dict[str, Any], source: str, origin: Any) -> Scenario:
    kind = data.get("kind", "tasks")
    if kind not in KINDS:
        raise_problems([f'kind = {json.dumps(kind, default=str)}: allowed are "tasks", "jobs"{origin(("kind",))}'], source)
    root = KINDS[kind]
    raise_problems(list(find_non_finite(data, data, origin=origin)), source)
    try:
        # Strict JSON takes arrays for tuples and integers for floats, as TOML means them, and coerces nothing else.
        settings: Any = root.model_validate_json(json.dumps(data, default=str), strict=True)
    except ValidationError as error:
        raise_problems(describe_errors(error, data, root, origin), source)
        raise AssertionError("unreachable: a validation error has at least one problem") from error
    raise_problems([problem + origin(location) for location, problem in check_scenario(settings)], source)
    return settings


def _read(name: str) -> tuple[str, str]:
    """(Text, what errors call it)."""
    path = Path(name)
    if not path.suffix and not path.exists():
        return _shipped_text(name), name
    try:
        return path.read_text(encoding="utf-8"), name
    except OSError as error:
        raise ConfigError(f"cannot read {name}: {error.strerror}.", "`plait simulate` lists the shipped scenarios.") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{name} is not UTF-8 text: {error.reason}.", "Save it as UTF-8.") from error


def _shipped_text(name: str) -> str:
    names = shipped_names()
    if name not in names:
        import difflib

        near = difflib.get_close_matches(name, names, n=1)
        hint = f'Did you mean "{near[0]}"? ' if near else ""
        raise ConfigError(f'there is no scenario "{name}".', f"{hint}Shipped are {', '.join(names)}; or give a TOML file.")
    return (_folder() / f"{name}.toml").read_text(encoding="utf-8")


def _folder() -> Any:
    return files("plait.simulation") / "scenarios"
