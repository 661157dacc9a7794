"""Questions from JSONL files and hub data sets, each with the place it came from, for messages."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from plait.types.errors import ConfigError


class Record(msgspec.Struct, frozen=True):
    """`place` is "file.jsonl:12" or "id[split]:12", counted from 1."""

    place: str
    number: int
    fields: dict[str, Any]

    def text(self, name: str) -> str:
        """A field that must be there and hold text or a number."""
        value = self.fields.get(name)
        if isinstance(value, bool) or not isinstance(value, str | int | float) or not str(value).strip():
            raise ConfigError(f"{self.place}: field {name!r} is {value!r}.", f"Each line needs a {name!r} with text in it.")
        return str(value)


def load_records(path: str, split: str) -> list[Record]:
    """Read a JSONL file, or the hub data set ID[:CONFIG][@SPLIT] (`split` unless the id names one)."""
    if Path(path).is_file():
        return list(_read_lines(Path(path)))
    if path.endswith((".jsonl", ".json")) or path.startswith(("/", "./", "../", "~")):
        raise ConfigError(f"{path} does not exist.", "Give the path of a JSONL file, or the id of a hub data set.")
    return _load_hub(path, split)


def _read_lines(path: Path) -> Iterator[Record]:
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            if line.strip():
                yield Record(f"{path}:{number}", number, _parse_line(line, f"{path}:{number}"))


def _parse_line(line: str, place: str) -> dict[str, Any]:
    try:
        fields = json.loads(line)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{place} is not JSON: {error}.", "Each line must be one JSON object.") from error
    if not isinstance(fields, dict):
        raise ConfigError(f"{place} holds {type(fields).__name__}, not an object.", "Each line must be one JSON object.")
    return fields


def _load_hub(path: str, split: str) -> list[Record]:
    try:
        import datasets
    except ImportError as error:
        raise ConfigError(
            f"{path!r} is no file here, and hub data sets need the package `datasets`, which is not installed.",
            "Install it (pip install datasets), or give the path of a JSONL file.",
        ) from error
    name, _, wanted_split = path.partition("@")
    name, _, configuration = name.partition(":")
    split = wanted_split or split
    rows = datasets.load_dataset(name, configuration or None, split=split)
    return [Record(f"{name}[{split}]:{number}", number, dict(row)) for number, row in enumerate(rows, start=1)]
