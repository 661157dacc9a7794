"""Write docs/configuration.md from the settings' own types, bounds, defaults and docstrings: `python docs/make_configuration.py`.

With `--check` nothing is written; the exit code is 1 if the page is not what would be written.
"""

import json
import sys
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import annotated_types
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from plait.config.base import Settings
from plait.config.environments import DelaySettings, EnvironmentSettings
from plait.config.known_keys import ENVIRONMENTS
from plait.config.run import EngineSettings, FurtherModelSettings, RunSettings
from plait.config.store import StoreSettings
from plait.config.task import TaskSettings

PAGE = Path(__file__).with_name("configuration.md")

OPENING = """\
# Configuration

<!-- Written by docs/make_configuration.py from src/plait/config. Do not edit: change the settings' docstrings, then run it. -->

A run is described by one TOML file. `plait run --example` prints a short one, `plait run --dry-run FILE` checks a file and says
what the run needs, and the settings in force, defaults included, are kept in `RUN/config.toml`.

- An unknown key, a value of the wrong type and a key that would have no effect are errors. Each names the key and, where there
  is one, the nearest that exists. All faults of a file are told at once.
- Nothing is converted: `"1"` is not a number and `1` is not `true`. A whole number may stand for a float.
- Relative paths are taken from the folder of the file.
- "–" in the column of defaults means that the key is absent; **required** that it must be given.
"""

SECTIONS = {
    "model": "The frozen base model of all tasks that name no other.",
    "workers": "The processes of the run and their threads.",
    "engine": "Generation.",
    "training": "Training, the same for all tasks; what to train is the tasks' business.",
    "state": "What is kept.",
    "tracking": "Trackers that follow the event log. They may fail without harm to the run.",
}

KIND = 'Chooses the kind: `kind = "{kind}"`.'
NAMES_OF_TYPES: dict[Any, str] = {str: "string", int: "whole number", float: "number", bool: "true or false", Path: "path"}


def main() -> None:
    page = make_page()
    if "--check" in sys.argv[1:]:
        sys.exit(0 if PAGE.exists() and PAGE.read_text(encoding="utf-8") == page else f"{PAGE} is out of date: run {__file__}")
    PAGE.write_text(page, encoding="utf-8")


def make_page() -> str:
    return "\n".join(
        [
            OPENING,
            *settings_section("The run", "", RunSettings),
            *(line for name in SECTIONS for line in _run_section(name)),
            *settings_section("[[tasks]]", "One table for each task, as many as you like.", TaskSettings),
            *_task_sections(),
            *_environment_sections(),
        ]
    )


MODELS = """\
One table for each further base model; a task trains one of them with `model = "NAME"`. Unless they are multiplexed, each has
worker processes of its own, and all threads together should not be more than there are cores. `[models.workers]` and
`[models.engine]` stand below their `[[models]]` and have the keys of `[workers]` (but for `environment_processes`, which all share)
and `[engine]`; what they leave out has its default."""


def _run_section(name: str) -> Iterator[str]:
    yield from settings_section(f"[{name}]", SECTIONS[name], _inner(RunSettings, name))
    if name == "engine":
        yield from settings_section("[engine.store]", _prose(StoreSettings), StoreSettings)
    if name == "model":
        yield from settings_section("[[models]]", MODELS, FurtherModelSettings)


def _task_sections() -> Iterator[str]:
    for name in TaskSettings.model_fields:
        inner = _inner_or_none(TaskSettings, name)
        if inner is not None and name != "environment":
            yield from settings_section(f"[tasks.{name}]", _prose(inner), inner)


def _environment_sections() -> Iterator[str]:
    text = "Where questions come from and how answers are scored. `kind` chooses one of the four below; these keys they share."
    yield from settings_section("[tasks.environment]", text, EnvironmentSettings)
    for kind, settings in ENVIRONMENTS.items():
        own = [name for name in settings.model_fields if name not in EnvironmentSettings.model_fields]
        yield from settings_section(f'[tasks.environment], kind = "{kind}"', _prose(settings), settings, own)
    yield from settings_section("[tasks.environment.delay]", _prose(DelaySettings), DelaySettings)


def settings_section(
    title: str, text: str, settings: type[Settings], names: list[str] | None = None, level: int = 2
) -> Iterator[str]:
    yield from (f"{'#' * level} {title}", "")
    if text:
        yield from (text, "")
    yield from ("| key | type | default | meaning |", "|---|---|---|---|")
    for name in settings.model_fields if names is None else names:
        field = settings.model_fields[name]
        yield f"| `{name}` | {_cell(_type(field))} | {_cell(_default(field))} | {_cell(_meaning(settings, name))} |"
    yield ""


def _prose(settings: type[Settings]) -> str:
    """The class's own docstring, in one paragraph."""
    text = settings.__dict__.get("__doc__") or ""
    return " ".join(text.split())


def _meaning(settings: type[Settings], name: str) -> str:
    field = settings.model_fields[name]
    if name == "kind" and field.default not in (PydanticUndefined, None) and len(_options(field.annotation)) == 1:
        return KIND.format(kind=field.default)
    if _table(settings, name):
        return _table(settings, name)
    text = " ".join((field.description or "").split())
    if not text:
        raise SystemExit(f"{settings.__name__}.{name} has no docstring: write one in src/plait/config")
    return text


def _table(settings: type[Settings], name: str) -> str:
    """Where the keys of a table are listed, for a field of a run that is one."""
    if not settings.__module__.startswith("plait.config."):
        return ""
    if settings is RunSettings and name in ("tasks", "models"):
        return f"See `[[{name}]]`."
    if settings is FurtherModelSettings:
        return ""
    if settings is EngineSettings:
        return f"See `[engine.{name}]`." if _inner_or_none(settings, name) else ""
    if settings is not RunSettings and name == "environment":
        return "See `[tasks.environment]`."
    inner = _inner_or_none(settings, name)
    if inner is None:
        return ""
    return (
        f"See `[{name}]`."
        if settings is RunSettings
        else f"See `[tasks.{'environment.' if inner is DelaySettings else ''}{name}]`."
    )


def _inner(settings: type[Settings], name: str) -> type[Settings]:
    inner = _inner_or_none(settings, name)
    assert inner is not None
    return inner


def _inner_or_none(settings: type[Settings], name: str) -> type[Settings] | None:
    """The settings class of a table."""
    for part in _parts(settings.model_fields[name].annotation):
        inner = typing.get_args(part)[0] if typing.get_origin(part) is tuple else part
        if isinstance(inner, type) and issubclass(inner, Settings) and (inner is part or inner is FurtherModelSettings):
            return inner
    return None


def _parts(annotation: Any) -> tuple[Any, ...]:
    """The members of a union."""
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return typing.get_args(annotation)
    return (annotation,)


def _options(annotation: Any) -> tuple[Any, ...]:
    return typing.get_args(annotation) if typing.get_origin(annotation) is Literal else ()


def _type(field: FieldInfo) -> str:
    parts = [part for part in _parts(field.annotation) if part is not type(None)]
    return " or ".join(dict.fromkeys(_type_name(part) for part in parts)) + _bounds(field.metadata, field.annotation)


def _type_name(annotation: Any) -> str:
    if typing.get_origin(annotation) is typing.Annotated:
        inner, *metadata = typing.get_args(annotation)
        found = [item for part in metadata for item in (part.metadata if isinstance(part, FieldInfo) else [part])]
        return _type_name(inner) + _bounds(found, inner)
    if options := _options(annotation):
        return ", ".join(f"`{json.dumps(option)}`" for option in options)
    if typing.get_origin(annotation) is tuple:
        inner = typing.get_args(annotation)[0]
        is_table = isinstance(inner, type) and issubclass(inner, Settings)
        return "list of tables" if is_table else f"list of {_type_name(inner)}"
    if typing.get_origin(annotation) is dict or (isinstance(annotation, type) and issubclass(annotation, Settings)):
        return "table"
    return NAMES_OF_TYPES[annotation]


def _bounds(metadata: list[Any], annotation: Any) -> str:
    """`, 1 to 512`, `, above 0`."""
    found: dict[str, Any] = {}
    for item in metadata:
        for name in ("ge", "gt", "le", "lt", "pattern"):
            value = getattr(item, name, None)
            if value is not None:
                found[name] = value
        if isinstance(item, annotated_types.MinLen):
            found["min_length"] = item.min_length
    upto = "to" if "ge" in found else "up to"
    low = f"from {found['ge']}" if "ge" in found else f"above {found['gt']}" if "gt" in found else ""
    high = f"{upto} {found['le']}" if "le" in found else f"below {found['lt']}" if "lt" in found else ""
    text = " ".join(part for part in (low, high) if part)
    if "pattern" in found:
        text = f"`{found['pattern']}`"
    if "min_length" in found:
        text = "not empty" if annotation is str else f"at least {found['min_length']}"
    return f", {text}" if text else ""


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "**required**"
    if field.default is None:
        return "–"
    if isinstance(field.default, Settings):
        return "its defaults"
    if isinstance(field.default, float):
        return f"`{field.default:g}`"
    value = list(field.default) if isinstance(field.default, tuple) else field.default
    if isinstance(value, list) and value and isinstance(value[0], Settings):
        return "one with its defaults"
    return f"`{json.dumps(value)}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


if __name__ == "__main__":
    main()
