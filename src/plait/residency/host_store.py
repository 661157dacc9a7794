"""Contents in the host's memory, as files in a memory-backed folder, which the processes of a machine share.

- `FOLDER/pool/KEY` is a content; every process that uses it has a hard link to it in a folder of its own. The count of links is
  the count of users, so that equal contents of several processes take memory once.
- A process holds a lock on its folder. What a killed one left is removed by the next that starts.
- Keys are digests, and equal digests may be of different bytes: whoever finds its key in the pool compares.
"""

import contextlib
import fcntl
import logging
import mmap
import os
import shutil
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor

from plait.residency import content_file
from plait.residency.tensor_group import is_private
from plait.types.errors import StateError

log = logging.getLogger(__name__)
_PART = ".part"


class HostStore:
    """Threads may write and read different contents at a time. `folder` is made if need be.

    `later`: does a call beside whoever waits.
    """

    def __init__(self, folder: Path, later: Callable[..., None] = lambda call, *arguments: call(*arguments)) -> None:
        self._later = later
        self._pool, self._users, self._lock_file = folder / "pool", folder / "users", folder / "lock"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # The memory of one user is no other's.
        for path in (self._pool, self._users):
            path.mkdir(exist_ok=True)
        with self._locked():
            _remove_leftovers(self._users, self._pool)
            self._own = self._users / uuid.uuid4().hex
            self._own.mkdir()
            self._descriptor = os.open(self._own, os.O_RDONLY)
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        self._maps: dict[str, mmap.mmap] = {}
        """Mapped soon after they are written, so that a load is a copy between two places in memory and nothing else."""
        self._mapping = threading.Lock()

    @contextmanager
    def _locked(self) -> Iterator[None]:
        descriptor = os.open(self._lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def write(self, key: str, buffer: Tensor) -> str:
        """Store a content; its key, which is new for a private one. OSError if there is no room; then nothing is left."""
        part = self._own / f"{uuid.uuid4().hex}{_PART}"
        digest = content_file.write(part, content_file.pieces(buffer), is_private(key))
        try:
            key = self._publish(part, digest or key, buffer)
            self._later(self._try_map, key)
            return key
        finally:
            part.unlink(missing_ok=True)

    def _try_map(self, key: str) -> None:
        """So that who reads it need not. It may be gone, or empty; what else is wrong the reader will find."""
        with contextlib.suppress(OSError, ValueError):
            self._mapped(key)

    def _mapped(self, key: str) -> mmap.mmap:
        with self._mapping:
            if key not in self._maps:
                self._maps[key] = _map(self._own / key)
            return self._maps[key]

    def _publish(self, part: Path, key: str, buffer: Tensor) -> str:
        while True:
            is_put, was_ours = self._link(part, key)
            is_same = False
            try:
                is_same = is_put or content_file.holds(self._own / key, content_file.pieces(buffer))
            finally:
                if not is_same and not was_ours:
                    self.remove(key)
            if is_same:
                return key
            key = other_key(key)

    def _link(self, part: Path, key: str) -> tuple[bool, bool]:
        """Put the new file into the pool unless it has this key: whether it was put, and whether we had the key before."""
        with self._locked():
            if (self._own / key).exists():
                return False, True
            try:
                os.link(part, self._pool / key)
            except FileExistsError:
                os.link(self._pool / key, self._own / key)
                return False, False
            os.rename(part, self._own / key)
            return True, False

    def sync(self, keys: Iterable[str]) -> None:
        """Nothing to wait for: memory outlives no crash."""

    def has(self, key: str) -> bool:
        return (self._own / key).exists()

    def view(self, key: str, num_bytes: int) -> Tensor:
        """A content's bytes where they are, to be read. `StateError` if the file is missing or of another size."""
        path = self._own / key
        try:
            content_file.check_size(path, path.stat().st_size, num_bytes)
            memory = self._mapped(key) if num_bytes else bytearray(1)
        except OSError as error:
            raise StateError(f"cannot read {path}: {error.strerror or error}.", content_file.REMEDY) from error
        return torch.frombuffer(memory, dtype=torch.uint8)[:num_bytes]

    def read(self, key: str, buffer: Tensor) -> None:
        buffer.copy_(self.view(key, buffer.numel()))

    def holds(self, key: str, buffer: Tensor) -> bool:
        return content_file.compare(self._own / key, buffer)

    def remove(self, key: str) -> bool:
        """Whether it is gone, unless others use it; an error is logged."""
        try:
            with self._mapping, self._locked():
                self._maps.pop(key, None)
                (self._own / key).unlink(missing_ok=True)
                _remove_unused([self._pool / key])
        except OSError as error:
            log.warning("cannot remove %s: %s", self._own / key, error)
            return False
        return True

    def close(self) -> None:
        """Remove what only this process uses."""
        self._maps.clear()
        with self._locked():
            shutil.rmtree(self._own)
            _remove_unused(self._pool.iterdir())
        os.close(self._descriptor)


def _map(path: Path) -> mmap.mmap:
    """The whole file, with all of its pages."""
    descriptor = os.open(path, os.O_RDWR)
    try:
        return mmap.mmap(descriptor, 0, flags=mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0))
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
