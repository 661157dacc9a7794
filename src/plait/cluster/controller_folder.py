"""Folders of this process on this machine, for small things that workers tell each other. They go with the process."""

import hashlib
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path


@cache
def _folder() -> "tempfile.TemporaryDirectory[str] | None":
    try:
        return tempfile.TemporaryDirectory(prefix="plait-controller-")
    except OSError:  # Nowhere to write: workers do without.
        return None


def controller_folder(owner: Path) -> str:
    """Of the run or server whose folder is `owner`; empty if there is none."""
    parent = _folder()
    if parent is None:
        return ""
    folder = Path(parent.name, hashlib.blake2b(str(owner.absolute()).encode(), digest_size=8).hexdigest())
    with suppress(OSError):
        folder.mkdir(exist_ok=True)
    return str(folder)
