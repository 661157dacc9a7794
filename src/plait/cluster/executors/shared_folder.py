"""Is a folder the same one on another node? A file with random content is written on one side and read on the other."""

import os
import secrets
import socket
from pathlib import Path

import msgspec

PREFIX = ".plait-shared-"


class FolderProbe(msgspec.Struct, frozen=True):
    path: str
    content: str


def write_probe(folder: Path) -> FolderProbe:
    """Remove it with `remove_probe`."""
    folder.mkdir(parents=True, exist_ok=True)
    content = secrets.token_hex(16)
    path = folder.absolute() / f"{PREFIX}{content[:8]}"
    path.write_text(content, encoding="utf-8")
    return FolderProbe(str(path), content)


def remove_probe(probe: FolderProbe) -> None:
    Path(probe.path).unlink(missing_ok=True)


def find_problem(probe: FolderProbe) -> str:
    """Empty if this node sees the file as it was written."""
    folder = os.path.dirname(probe.path)
    try:
        found = Path(probe.path).read_text(encoding="utf-8")
    except OSError as error:
        return f"node {socket.gethostname()} does not see {folder} as the controller does: {error.strerror}."
    return "" if found == probe.content else f"node {socket.gethostname()} has another {folder} than the controller."
