"""From a TOML file and the environment to the server's settings, and what may not change from one start to the next.

- `PLAIT_SERVER__PORT=9000` stands over `port` in the file, `PLAIT_SERVER__MODEL__PATH=...` over `path` in `[model]`. A value is
  read as TOML; what is not TOML, and anything where a string belongs, is taken as it stands.
- Every fault is told at once, in one `ConfigError`: the key, the value, and the file or variable that it comes from.
- Relative paths are taken from the folder of the file or, where a variable gives them, from the working directory.
- A database's password is never written down.
"""

import difflib
import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from plait.config.checks import check_deployments
from plait.config.known_keys import settings_at, walk_keys
from plait.config.paths import model_key, resolve_model
from plait.config.problems import Location, describe_errors, find_non_finite, raise_problems
from plait.config.rank_checks import idle_server_ranks
from plait.config.server import ServerSettings
from plait.types.errors import ConfigError

PREFIX = "PLAIT_SERVER__"
FIXED_KEYS = ("model.path", "model.dtype", "lora.alpha", "database_url")
"""What stored adapters and the rows about them depend on."""

Origins = dict[tuple[str, ...], str]
"""Variables by the location of the value that they gave."""


def load_server_settings(
    file: Path | None, environment: Mapping[str, str], ray_address: str | None = None, shown: Mapping[str, str] | None = None
) -> ServerSettings:
    """Read, check and resolve: the file, if there is one, with the environment's variables over it.

    `ray_address`: workers of all base models are put on this Ray cluster. `shown`: what faults call some of the variables.
    """
    data = _read(file) if file else {}
    origins: Origins = {}
    if ray_address is not None:
        on_ray = {"WORKERS__EXECUTOR": "ray", "WORKERS__RAY_ADDRESS": ray_address}
        environment = {**environment, **{PREFIX + key: value for key, value in on_ray.items()}}
        _put_on_ray(data.get("models"), ray_address)
    problems = [problem for name in sorted(environment) for problem in _override(data, name, environment[name], origins)]
    origins = {location: (shown or {}).get(name, name) for location, name in origins.items()}
    source = str(file) if file else "the settings"
    problems += find_non_finite(data, data, origin=lambda location: _origin(location, origins, source))
    raise_problems(problems, source)
    settings = _validate(data, origins, source)
    resolved, problems = _resolve(settings, file.absolute().parent if file else Path.cwd(), origins)
    raise_problems([*problems, *check_deployments(settings, settings.models), *idle_server_ranks(settings)], source)
    return resolved


def effective_server_toml(settings: ServerSettings) -> str:
    """All settings, defaults too, as a TOML file; of a database's URL without the password."""
    import tomli_w

    values = settings.model_dump(mode="json", exclude_none=True)
    return tomli_w.dumps({**values, "database_url": hide_password(settings.database_url)})


def conflicts(stored_toml: str, settings: ServerSettings) -> list[str]:
    """One line for each setting that may not change under existing data and did: key, old value, new value."""
    old, new = tomllib.loads(stored_toml), tomllib.loads(effective_server_toml(settings))
    lines = []
    for key in FIXED_KEYS:
        before, now = _value_at(old, key), _value_at(new, key)
        if before is not None and before != now:
            lines.append(f"{key}: was {json.dumps(before)}, is {json.dumps(now)}")
    before, now = _value_at(old, "lora.max_rank"), settings.lora.max_rank
    if before is not None and now < before:
        lines.append(f"lora.max_rank: was {before}, is {now}: adapters of a higher rank may exist")
    has_first = not any(line.startswith("model.") for line in lines)
    return [*lines, *(_model_conflicts(_names_of_models(old), _names_of_models(new)) if has_first else ())]


def _names_of_models(data: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """(path, dtype) of the base model that has each name."""
    found: dict[str, tuple[str, str]] = {}
    first = {**data.get("model", {}), "aliases": data.get("aliases", [])}
    for model in (first, *data.get("models", [])):
        weights = str(model.get("path")), str(model.get("dtype"))
        found |= dict.fromkeys((model.get("name") or weights[0], *model.get("aliases", [])), weights)
    return found


def _model_conflicts(old: Mapping[str, tuple[str, str]], new: Mapping[str, tuple[str, str]]) -> list[str]:
    """Where there were several base models, stored adapters know theirs by its name: it must go on to mean the same weights."""
    if len(set(old.values())) == 1:
        old = {name: weights for name, weights in old.items() if name in new}
    return [
        f'base model "{name}": was {" in ".join(weights)}, is {" in ".join(new[name]) if name in new else "not there"}'
        for name, weights in old.items()
        if new.get(name) != weights
    ]


def hide_password(url: str) -> str:
    return re.sub(r"(://[^:/@]*):.*@", r"\1:***@", url)


def _read(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}.", "Name a settings file, or start without one.") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file} is not UTF-8 text: {error.reason}.", "Save it as UTF-8.") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{file} is not TOML: {error}.", "See toml.io.") from error


def _put_on_ray(models: Any, address: str) -> None:
    """Base models with workers of their own; what is no such table is found when it is checked."""
    for model in models if isinstance(models, list) else ():
        if isinstance(model, dict) and isinstance(model.get("workers"), dict):
            model["workers"] |= {"executor": "ray", "ray_address": address}


def _override(data: dict[str, Any], name: str, text: str, origins: Origins) -> list[str]:
    """Put a variable's value into `data`; a problem if there is no place for it."""
    if not name.startswith(PREFIX):
        return [f"{name}: unknown variable{_suggest_variable(name)}"] if name.startswith(PREFIX.rstrip("_")) else []
    location = tuple(name.removeprefix(PREFIX).lower().split("__"))
    node: Any = data
    for part in location[:-1]:
        node = node.setdefault(part, {})
        if not isinstance(node, dict):
            return [f"{name}: {part} is not a table"]
    node[location[-1]] = _parse(text, location, data)
    origins[location] = name
    return []


def _parse(text: str, location: tuple[str, ...], data: Mapping[str, Any]) -> Any:
    try:
        parsed = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text
    owner = settings_at(location[:-1], data, ServerSettings)
    field = owner.model_fields.get(location[-1]) if owner else None
    wants_text = field is not None and field.annotation in (str, Path)
    value = parsed["value"]
    return text if len(parsed) > 1 or (wants_text and not isinstance(value, str)) else value


def _validate(data: Mapping[str, Any], origins: Origins, source: str) -> ServerSettings:
    try:
        return ServerSettings.model_validate_json(json.dumps(data, default=str), strict=True)
    except ValidationError as error:
        problems = describe_errors(error, data, ServerSettings, lambda location: _origin(location, origins, source))
    raise_problems(problems, source)
    raise AssertionError("unreachable: a validation error has at least one problem")


def _origin(location: Location, origins: Origins, source: str) -> str:
    """ " (from ...)", where any value comes from a variable at all."""
    given = [name for place, name in origins.items() if place == tuple(location)[: len(place)]]
    return f" (from {given[-1] if given else source})" if origins and location else ""


def _resolve(settings: ServerSettings, folder: Path, origins: Origins) -> tuple[ServerSettings, list[str]]:
    problems: list[str] = []

    def folder_of(*location: str) -> Path:
        return Path.cwd() if location in origins or location[:1] in origins else folder

    model_folder = folder_of("model", "path")
    model = resolve_model(settings.model, model_folder, "model.path", problems)
    models = tuple(
        resolve_model(each, folder_of("models"), f"{model_key(index, each)}.path", problems)
        for index, each in enumerate(settings.models)
    )
    data_folder = (folder_of("data_folder") / settings.data_folder.expanduser()).absolute()
    return settings.model_copy(update={"model": model, "models": models, "data_folder": data_folder}), problems


def _suggest_variable(name: str) -> str:
    names = [PREFIX + key.replace(".", "__").upper() for key in walk_keys(ServerSettings) if not key.startswith("models.")]
    near = difflib.get_close_matches(name, names, n=1)
    return f"; did you mean {near[0]}?" if near else f"; names start with {PREFIX}"


def _value_at(data: Mapping[str, Any], key: str) -> Any:
    value: Any = data
    for part in key.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value
