"""One thing that `plait doctor` looked at."""

from typing import Literal

import msgspec

Status = Literal["ok", "warning", "missing", "optional"]


class Finding(msgspec.Struct, frozen=True):
    name: str
    status: Status
    """"missing": needed and not there; "warning": it works, but worse; "optional": not there, and few need it."""
    detail: str
    remedy: str = ""
    purpose: str = ""
    """Of an extra."""
    versions: dict[str, str] = {}
    """Of what was found, by package."""
