"""The files of a checkpoint's folder, which may go at any time.

What is told is told of a whole folder; FileNotFoundError of one that is gone.
"""

from pathlib import Path
from typing import BinaryIO


def sizes_in(folder: Path) -> dict[str, int]:
    """Bytes of each file, by name relative to the folder."""
    found = {path.relative_to(folder).as_posix(): path.stat().st_size for path in folder.rglob("*") if path.is_file()}
    folder.stat()  # It loses its name before any file of it goes.
    return dict(sorted(found.items()))


def files_in(folder: Path) -> list[str]:
    """Names relative to the folder."""
    return list(sizes_in(folder))


def open_file(folder: Path, name: str) -> BinaryIO | None:
    """One of those that `files_in` tells of; None for anything else."""
    return open(folder / name, "rb") if name in files_in(folder) else None
