"""The files of a checkpoint's folder, which may go at any time.

What is told is told of a whole folder; FileNotFoundError of one that is gone. A file that is open is sent to its end.
"""

import os
from pathlib import Path
from typing import BinaryIO

from fastapi.responses import FileResponse
from starlette.types import Receive, Scope, Send

MEDIA_TYPE = "application/octet-stream"


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


class OpenFileResponse(FileResponse):
    """Of a file that is open, which it closes; its name may be gone."""

    def __init__(self, file: BinaryIO, filename: str | None = None) -> None:
        self._file = file
        number = file.fileno()
        super().__init__(f"/dev/fd/{number}", media_type=MEDIA_TYPE, filename=filename, stat_result=os.fstat(number))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._file:
            await super().__call__(scope, receive, send)
