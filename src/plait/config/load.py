"""From a TOML file to settings, and back.

- Every fault of a file is told at once, in one `ConfigError`: the key as the user wrote it, the value, and what is allowed.
- Types are strict (a string is no number, 1 is no true); an integer may stand for a float.
- Relative paths of data sets, functions and the model are taken from the file's folder.
"""

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from plait.config.checks import check_settings
from plait.config.paths import resolve_paths
from plait.config.problems import describe_errors, find_non_finite, raise_problems
from plait.config.run import RunSettings
from plait.types.errors import ConfigError


def load_settings(file: Path) -> RunSettings:
    """Read, check and resolve a settings file."""
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}.", "`plait run --example` prints a file to start from.") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file} is not UTF-8 text: {error.reason}.", "Save it as UTF-8.") from error
    return parse_settings(text, file.absolute().parent, str(file))


def parse_settings(text: str, folder: Path, source: str = "settings") -> RunSettings:
    """Check the text of a settings file that lies in `folder`; `source` names it in errors."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{source} is not TOML: {error}.", "See toml.io, and `plait run --example`.") from error
    return make_settings(data, folder, source)


def make_settings(data: Mapping[str, Any], folder: Path, source: str = "settings") -> RunSettings:
    """The same from plain values."""
    settings = validate(data, source)
    resolved, problems = resolve_paths(settings, folder)
    raise_problems([*problems, *check_settings(settings)], source)
    return resolved


def validate(data: Mapping[str, Any], source: str = "settings") -> RunSettings:
    """Parsed TOML to settings, each key on its own; how they fit together is up to `check_settings`."""
    raise_problems(list(find_non_finite(data, data)), source)
    try:
        # Strict JSON takes arrays for tuples and integers for floats, as TOML means them, and coerces nothing else.
        return RunSettings.model_validate_json(json.dumps(data, default=str), strict=True)
    except ValidationError as error:
        problems = describe_errors(error, data)
    raise_problems(problems, source)
    raise AssertionError("unreachable: a validation error has at least one problem")


def with_name(settings: RunSettings, name: str) -> RunSettings:
    """The same settings under another name, checked like one from a file."""
    return validate({**settings.model_dump(mode="json", exclude_none=True), "name": name}, "--name")


def with_ray(settings: RunSettings, address: str) -> RunSettings:
    """The same settings with workers on a Ray cluster, checked like those from a file."""
    data = settings.model_dump(mode="json", exclude_none=True)
    data["workers"] |= {"executor": "ray", "ray_address": address}
    changed = validate(data, "--ray")
    raise_problems(check_settings(changed), "--ray")
    return changed


def effective_toml(settings: RunSettings) -> str:
    """All settings, defaults too, as a TOML file that loads to the same settings."""
    import tomli_w

    return tomli_w.dumps(settings.model_dump(mode="json", exclude_none=True), multiline_strings=False)
