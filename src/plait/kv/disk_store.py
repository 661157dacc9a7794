"""Blocks as files in a bounded folder: written by one process, read by all that know the folder.

A file appears whole, by renaming; the least recently used make room. What a kill left half written is removed at the next start;
whole blocks stay of use, since their key says all about them.
"""

import contextlib
import os
import threading
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path

from plait.kv.block_log import BlockLog
from plait.kv.keys import KEY_BYTES, Key

_PART = ".part"


class DiskStore:
    """Keeps up to `capacity_bytes` in `folder`, and finds what the `peers` keep in theirs."""

    log: BlockLog | None = None
    """Told of what makes room for others."""

    def __init__(self, folder: str | os.PathLike[str], capacity_bytes: int, peers: Sequence[str | os.PathLike[str]] = ()) -> None:
        self.folder, self.capacity_bytes = Path(folder), capacity_bytes
        self._folders = (self.folder, *(Path(peer) for peer in peers))
        self._lock = threading.Lock()
        self.evictions = 0
        self.folder.mkdir(parents=True, exist_ok=True)
        self._files = self._adopt()
        """Name -> (bytes, time of modification as known), the least recently used first."""
        self._used_bytes = sum(size for size, _ in self._files.values())

    def _adopt(self) -> OrderedDict[str, tuple[int, float]]:
        found = []
        for path in self.folder.iterdir():
            if len(path.name) != 2 * KEY_BYTES:
                path.unlink(missing_ok=True)
                continue
            status = path.stat()
            found.append((status.st_mtime, status.st_size, path.name))
        return OrderedDict((name, (size, used_s)) for used_s, size, name in sorted(found))

    @property
    def used_bytes(self) -> int:
        return self._used_bytes

    def get(self, key: Key) -> bytes | None:
        for folder in self._folders:
            path = folder / key.hex()
            try:
                data = path.read_bytes()
                os.utime(path)
            except FileNotFoundError:
                continue
            return data
        return None

    def put(self, key: Key, data: bytes) -> None:
        if len(data) > self.capacity_bytes:
            return
        self._make_room(len(data))
        path = self.folder / key.hex()
        part = path.with_name(f"{path.name}.{threading.get_ident()}{_PART}")
        try:
            part.write_bytes(data)
            used_s = part.stat().st_mtime
            part.rename(path)
        except OSError:
            with contextlib.suppress(OSError):
                part.unlink(missing_ok=True)
            raise
        with self._lock:
            self._forget(path.name)
            self._files[path.name] = (len(data), used_s)
            self._used_bytes += len(data)

    def _make_room(self, num_bytes: int) -> None:
        """Remove the least recently used; a file that somebody has read since it was put in line goes to the end of it once."""
        while self._files and self.used_bytes + num_bytes > self.capacity_bytes:
            with self._lock:
                name, (size, known_s) = next(iter(self._files.items()))
                used_s = self._modified_s(name)
                if used_s is not None and used_s > known_s:
                    self._files[name] = (size, used_s)
                    self._files.move_to_end(name)
                    continue
                self._forget(name)
                self.evictions += used_s is not None
            (self.folder / name).unlink(missing_ok=True)
            if self.log is not None:
                self.log.went(bytes.fromhex(name))

    def _forget(self, name: str) -> None:
        size, _ = self._files.pop(name, (0, 0.0))
        self._used_bytes -= size

    def _modified_s(self, name: str) -> float | None:
        try:
            return (self.folder / name).stat().st_mtime
        except FileNotFoundError:
            return None

    def remove(self, key: Key) -> None:
        with self._lock:
            self._forget(key.hex())
        for folder in self._folders:
            (folder / key.hex()).unlink(missing_ok=True)

    def close(self) -> None:
        """Files stay; `clear_folder` removes them."""


def clear_folder(folder: str | os.PathLike[str]) -> None:
    """Remove all blocks below a folder, and folders that are then empty; for whoever starts or ends a run."""
    for path in sorted(Path(folder).glob("**/*"), reverse=True):
        with contextlib.suppress(OSError):
            if path.is_dir():
                path.rmdir()
            elif len(path.name) == 2 * KEY_BYTES or path.suffix == _PART:
                path.unlink()
