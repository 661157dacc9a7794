"""What commands print: errors in colour on a terminal only, sizes for people, JSON for programs."""

import json
import math
import os
import sys
import tempfile
from pathlib import Path
from typing import IO, Any

from plait.types.errors import ConfigError, PlaitError

_RED, _YELLOW, _GREEN, _RESET = "31", "33", "32", "\033[0m"
STATUS_COLOURS = {"error": _RED, "missing": _RED, "warning": _YELLOW, "ok": _GREEN}


def coloured(text: str, status: str, stream: IO[str]) -> str:
    """`text` in the colour of a status, if the stream is a terminal and NO_COLOR is not set."""
    wants_colour = stream.isatty() and not os.environ.get("NO_COLOR")
    return f"\033[{STATUS_COLOURS[status]}m{text}{_RESET}" if wants_colour and status in STATUS_COLOURS else text


def print_error(error: PlaitError) -> None:
    print(f"{coloured('error:', 'error', sys.stderr)} {error.message}", file=sys.stderr)
    if error.remedy:
        print(error.remedy, file=sys.stderr)


def print_warning(text: str) -> None:
    print(f"{coloured('warning:', 'warning', sys.stderr)} {text}", file=sys.stderr)


def print_json(value: Any) -> None:
    print(json.dumps(value, indent=2))


def check_target(file: Path | None, option: str) -> None:
    """Before work of minutes, not after it: `file` can be written. What it holds stays. ConfigError naming `option` otherwise."""
    if file is None:
        return
    try:
        if file.is_dir():
            raise ConfigError(f"cannot write {file}: it is a folder.", f"Name a file in it with {option}.")
        if not file.absolute().parent.is_dir():
            raise ConfigError(
                f"cannot write {file}: there is no folder {file.parent}.", f"Make the folder, or choose another file with {option}."
            )
        if file.is_file():
            file.open("ab").close()
        elif not file.exists():
            _try_to_write_in(file.absolute().parent)
    except OSError as error:
        raise ConfigError(f"cannot write {file}: {error.strerror}.", f"Choose another file with {option}.") from error


def check_folder(folder: Path | None, option: str) -> None:
    """As `check_target`, of a folder that may have to be made."""
    if folder is None:
        return
    there = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    if not there.is_dir():
        raise ConfigError(f"cannot write to {folder}: {there.name} is a file.", f"Choose another folder with {option}.")
    try:
        _try_to_write_in(there)
    except OSError as error:
        raise ConfigError(f"cannot write to {folder}: {error.strerror}.", f"Choose another folder with {option}.") from error


def _try_to_write_in(folder: Path) -> None:
    """Rights alone do not say it: a disk may be read-only, or full."""
    with tempfile.TemporaryFile(dir=folder) as file:
        file.write(b"0")


def write_file(file: Path, content: bytes, option: str) -> None:
    """A result that took minutes is not lost: where `file` cannot be written, ConfigError says where it is instead."""
    try:
        file.write_bytes(content)
    except OSError as error:
        kept = _keep(file.name, content)
        raise ConfigError(f"cannot write {file}: {error.strerror}.", f"{kept}Choose another file with {option}.") from error


def _keep(name: str, content: bytes) -> str:
    """What to say of where it is now; nothing if no other place has room."""
    try:
        file = Path(tempfile.mkdtemp(prefix="plait-")) / name
        file.write_bytes(content)
    except OSError:
        return ""
    return f"It is in {file}. "


def check_finite(option: str, value: float | None) -> None:
    """The command line takes "nan" and "inf" for numbers, whatever its bounds."""
    if value is not None and not math.isfinite(value):
        raise ConfigError(f"{option} {value}: it is no finite number.", f"Give {option} another one.")


def human_bytes(size_bytes: float) -> str:
    """`640 MB`, `1.3 GB`: powers of ten."""
    for unit, factor in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size_bytes >= factor:
            number = size_bytes / factor
            return f"{number:.1f} {unit}" if number < 10 else f"{number:.0f} {unit}"
    return f"{size_bytes:.0f} B"
