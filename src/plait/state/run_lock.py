"""One process at a time has a run: an exclusive `flock` that ends with the process, however it ends.

- Who only asks who has it (`lock_holder`) takes a shared lock for a moment. Whoever takes the run tells the two apart, and waits
  for those that ask, however slow they are.
- Letting go is for all copies of the descriptor: a child that is just being forked does not hold the run any longer.
- The file that is locked is the one that is there under its name: a run that was removed and made anew is another one.
"""

import fcntl
import os
import random
import time
from pathlib import Path
from types import TracebackType

from plait.types.errors import StateError

HOLDER_GRACE_S = 0.2
"""For a holder that is just ending."""
READER_GRACE_S = 60.0
"""A reader holds the lock for microseconds, unless it is stopped in between."""
PAUSE_S = 0.01


class RunLock:
    """Held from construction until `release`, the end of a `with` block, or the end of the process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = _locked(path)
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        if self._descriptor >= 0:
            os.ftruncate(self._descriptor, 0)
            _close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> "RunLock":
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None) -> None:
        self.release()


def lock_holder(path: Path) -> int | None:
    """The process id that holds the lock (0 when it cannot be told); None when nobody does."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        return None if _try(descriptor, fcntl.LOCK_SH) else _read_holder(descriptor) or 0
    finally:
        _close(descriptor)


def _locked(path: Path) -> int:
    """A descriptor that holds the lock. Raises StateError if another process has it."""
    while True:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except FileNotFoundError as error:
            raise StateError(f"there is no folder {path.parent}.", "It was removed, or never made.") from error
        try:
            _lock(descriptor, path)
            if _is_there(descriptor, path):
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        _close(descriptor)


def _lock(descriptor: int, path: Path) -> None:
    start_s = time.monotonic()
    while not _try(descriptor, fcntl.LOCK_EX):
        is_held = not _try(descriptor, fcntl.LOCK_SH)
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        if time.monotonic() - start_s > (HOLDER_GRACE_S if is_held else READER_GRACE_S):
            holder = _read_holder(descriptor) if is_held else None
            who = f"process {holder}" if holder else "another process"
            raise StateError(f"the run {path.parent} is in use by {who}.", "Wait for it to end, or end that process.")
        time.sleep(PAUSE_S * random.random())  # Two that begin at once must not go on in step.


def _try(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_there(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


def _close(descriptor: int) -> None:
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    os.close(descriptor)


def _read_holder(descriptor: int) -> int | None:
    text = os.pread(descriptor, 32, 0).strip()
    return int(text) if text.isdigit() else None
