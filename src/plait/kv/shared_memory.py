"""Memory that several processes of one machine map, known by a path; it ends with the process that made it, however that ends.

On Linux the memory has no file: its path leads to the maker's descriptor, so that nothing is left after a kill, and the small
shared-memory mount of a container does not bound it. Elsewhere it is a locked temporary file; files whose maker is gone, so that
nobody holds the lock, are removed when the next one is made.
"""

import fcntl
import mmap
import os
import tempfile
from pathlib import Path

PREFIX = "plait-kv-"


class SharedMemory:
    """`num_bytes` zeros to begin with; pages take memory when first written. Keep it open as long as others may map it."""

    def __init__(self, num_bytes: int, folder: str | os.PathLike[str] | None = None) -> None:
        """`folder` asks for a file there."""
        self._file: Path | None
        if folder is None and hasattr(os, "memfd_create"):
            self._file, self._descriptor = None, os.memfd_create(PREFIX)
        else:
            self._file, self._descriptor = _locked_file(Path(folder or tempfile.gettempdir()))
        self.num_bytes = num_bytes
        os.ftruncate(self._descriptor, num_bytes)

    @property
    def path(self) -> str:
        return str(self._file or f"/proc/{os.getpid()}/fd/{self._descriptor}")

    def close(self) -> None:
        """Others that have mapped the memory keep it until they end."""
        if self._file is not None:
            self._file.unlink(missing_ok=True)
        os.close(self._descriptor)


def _locked_file(folder: Path) -> tuple[Path, int]:
    remove_leftovers(folder)
    while True:
        descriptor, name = tempfile.mkstemp(prefix=PREFIX, dir=folder)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if os.fstat(descriptor).st_nlink:  # nobody took it for a leftover before it was locked
            return Path(name), descriptor
        os.close(descriptor)


def remove_leftovers(folder: Path) -> None:
    """Remove the files of makers that are gone."""
    for path in folder.glob(f"{PREFIX}*"):
        try:
            descriptor = os.open(path, os.O_RDWR)
        except OSError:  # another user's, or removed meanwhile
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink(missing_ok=True)
        except BlockingIOError:
            continue
        finally:
            os.close(descriptor)


def attach(path: str) -> mmap.mmap:
    """Map all of it; FileNotFoundError if its maker is gone."""
    descriptor = os.open(path, os.O_RDWR)
    try:
        return mmap.mmap(descriptor, os.fstat(descriptor).st_size)
    finally:
        os.close(descriptor)
