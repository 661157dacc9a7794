"""Contents in the host's memory, as files in a memory-backed folder, which the processes of a machine share.

- `FOLDER/pool/KEY` is a content; every process that uses it has a hard link to it in a folder of its own. The count of links is
  the count of users, so that equal contents of several processes take memory once.
- A process holds a lock on its folder. What a killed one left is removed by the next that starts.
- Keys are digests, and equal digests may be of different bytes: whoever finds its key in the pool compares.
- Contents are mapped, so that a load is a copy between two places in memory. What nobody uses any more is kept to be written over.
"""

import contextlib
import fcntl
import itertools
import logging
import mmap
import os
import shutil
import sys
import threading
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor

from plait.residency import content_file
from plait.residency.spares import SpareFile, SpareFiles
from plait.residency.tensor_group import is_private
from plait.types.errors import StateError

log = logging.getLogger(__name__)
_PART = ".part"
_OWN_LINKS = 2
"""Of what one process uses: the pool's, and its own."""
_UNSHARED = 2
"""References to what nobody else has: the caller's, and that of the call that counts them."""


class HostStore:
    """Threads may write and read different contents at a time. `folder` is made if need be. `spares` are the caller's to bound."""

    def __init__(self, folder: Path) -> None:
        self._pool, self._users, self.spares = folder / "pool", folder / "users", SpareFiles()
        _make_own(folder)
        for path in (self._pool, self._users):
            path.mkdir(exist_ok=True)
        self._lock_descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._mapping = threading.Lock()
        """Of `_maps`, and of who may hold the lock of the folder: threads share its descriptor."""
        self._maps: dict[str, mmap.mmap] = {}
        self._numbers = itertools.count()
        with self._locked():
            _remove_leftovers(self._users, self._pool)
            self._own = self._users / uuid.uuid4().hex
            self._own.mkdir()
            self._descriptor = os.open(self._own, os.O_RDONLY)
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """The only one of all processes to change links, and of all threads to change `_maps`."""
        with self._mapping:
            fcntl.flock(self._lock_descriptor, fcntl.LOCK_EX)
            try:
                yield
            finally:
                fcntl.flock(self._lock_descriptor, fcntl.LOCK_UN)

    def write(self, key: str, buffer: Tensor) -> str:
        """Store a content; its key, which is new for a private one. OSError if there is no room; then nothing is left."""
        spare = self.spares.take(buffer.numel())
        part = self._new_part() if spare is None else spare.path
        try:
            parts = content_file.pieces(buffer)
            if spare is None or spare.memory is None:
                digest, memory = content_file.write(part, parts, is_private(key)), None
            else:
                digest, memory = content_file.write_over(spare.memory, parts, is_private(key)), spare.memory
            return self._publish(part, memory, digest or key, buffer)
        finally:
            part.unlink(missing_ok=True)

    def _new_part(self) -> Path:
        return self._own / f"{next(self._numbers)}{_PART}"

    def _publish(self, part: Path, memory: mmap.mmap | None, key: str, buffer: Tensor) -> str:
        while True:
            is_put, was_ours = self._link(part, memory, key)
            is_same = False
            try:
                is_same = is_put or content_file.holds(self._own / key, content_file.pieces(buffer))
            finally:
                if not is_same and not was_ours:
                    self.remove(key)
            if is_same:
                return key
            key = other_key(key)

    def _link(self, part: Path, memory: mmap.mmap | None, key: str) -> tuple[bool, bool]:
        """Put the new file into the pool unless it has this key: whether it was put, and whether we had the key before."""
        with self._locked():
            own, pooled = self._own / key, self._pool / key
            try:
                os.link(part, pooled)
            except FileExistsError:
                if own.exists():
                    return False, True
                os.link(pooled, own)
                return False, False
            os.rename(part, own)
            if memory is not None:
                self._maps[key] = memory
            return True, False

    def sync(self, keys: Iterable[str]) -> None:
        """Contents that were written are ready to be read. There is nothing to wait for: memory outlives no crash.

        They are mapped one after another, since threads of a process that map wait for each other.
        """
        for key in keys:
            with contextlib.suppress(OSError):  # gone, or empty; what else is wrong the reader will find
                self._mapped(key, (self._own / key).stat().st_size)

    def has(self, key: str) -> bool:
        return (self._own / key).exists()

    def view(self, key: str, num_bytes: int) -> Tensor:
        """A content's bytes where they are, to be read. `StateError` if the file is missing or of another size."""
        path = self._own / key
        try:
            content_file.check_size(path, path.stat().st_size, num_bytes)
            memory = self._mapped(key, num_bytes) or bytearray(1)
        except OSError as error:
            raise StateError(f"cannot read {path}: {error.strerror or error}.", content_file.REMEDY) from error
        return torch.frombuffer(memory, dtype=torch.uint8)[:num_bytes]

    def _mapped(self, key: str, num_bytes: int) -> mmap.mmap | None:
        """Of a content that another process has written, from now on."""
        with self._mapping:
            memory = self._maps.get(key) or _map(self._own / key, num_bytes)
            if memory is not None:
                self._maps[key] = memory
            return memory

    def read(self, key: str, buffer: Tensor) -> None:
        buffer.copy_(self.view(key, buffer.numel()))

    def holds(self, key: str, buffer: Tensor) -> bool:
        return content_file.compare(self._own / key, buffer)

    def remove(self, key: str) -> bool:
        """Whether it is gone, unless others use it; an error is logged."""
        try:
            with self._locked():
                memory = self._maps.pop(key, None)
                if memory is not None and sys.getrefcount(memory) <= _UNSHARED and self._is_ours_alone(key, len(memory)):
                    self._spare(key, memory)
                else:
                    (self._own / key).unlink(missing_ok=True)
                    _remove_unused([self._pool / key])
        except OSError as error:
            log.warning("cannot remove %s: %s", self._own / key, error)
            return False
        return True

    def _is_ours_alone(self, key: str, num_bytes: int) -> bool:
        """Whether no other process has it, and nobody has cut the file."""
        try:
            own, pooled = (self._own / key).stat(), (self._pool / key).stat()
        except FileNotFoundError:
            return False
        return own.st_nlink == _OWN_LINKS and own.st_ino == pooled.st_ino and own.st_size == num_bytes

    def _spare(self, key: str, memory: mmap.mmap) -> None:
        part = self._new_part()
        os.unlink(self._pool / key)
        os.rename(self._own / key, part)
        self.spares.give(len(memory), SpareFile(part, memory))

    def close(self) -> None:
        """Remove what only this process uses."""
        self.spares.clear()
        self._maps.clear()
        with self._locked():
            shutil.rmtree(self._own)
            _remove_unused(self._pool.iterdir())
        os.close(self._descriptor)
        os.close(self._lock_descriptor)


def _make_own(folder: Path) -> None:
    """The memory of one user is no other's: in a place where all may write, another may have been there first."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.lstat().st_uid != os.getuid():
        raise StateError(f"{folder} belongs to another user.", "Have it removed, or keep state elsewhere.")


def _map(path: Path, num_bytes: int) -> mmap.mmap | None:
    """The whole file, with all of its pages; None if it is empty."""
    if not num_bytes:
        return None
    descriptor = os.open(path, os.O_RDWR)
    try:
        return mmap.mmap(descriptor, num_bytes, flags=mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0))
    finally:
        os.close(descriptor)


def other_key(key: str) -> str:
    """The next key for bytes that have the digest of other bytes."""
    digest, _, number = key.partition("-")
    return f"{digest}-{int(number or 0) + 1}"


def _remove_leftovers(users: Path, pool: Path) -> None:
    for folder in users.iterdir():
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder)
        except BlockingIOError:
            continue
        finally:
            os.close(descriptor)
    _remove_unused(pool.iterdir())


def _remove_unused(paths: Iterable[Path]) -> None:
    for path in paths:
        if path.exists() and path.stat().st_nlink == 1:
            path.unlink()
