"""What commands print: errors in colour on a terminal only, sizes for people, JSON for programs."""

import json
import os
import sys
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


def check_target(file: Path | None) -> None:
    """Before work of minutes, not after it: the file's folder is there, and the file is none. ConfigError otherwise."""
    if file is not None and not file.absolute().parent.is_dir():
        raise ConfigError(f"cannot write {file}: there is no folder {file.parent}.", "Make the folder, or choose another file.")
    if file is not None and file.is_dir():
        raise ConfigError(f"cannot write {file}: it is a folder.", "Name a file in it.")


def write_file(file: Path, content: bytes) -> None:
    try:
        file.write_bytes(content)
    except OSError as error:
        raise ConfigError(f"cannot write {file}: {error.strerror}.", "Choose another file.") from error


def human_bytes(size_bytes: float) -> str:
    """`640 MB`, `1.3 GB`: powers of ten."""
    for unit, factor in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size_bytes >= factor:
            number = size_bytes / factor
            return f"{number:.1f} {unit}" if number < 10 else f"{number:.0f} {unit}"
    return f"{size_bytes:.0f} B"
