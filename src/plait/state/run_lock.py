"""One process at a time has a run: an exclusive `flock` that ends with the process, however it ends."""

import fcntl
import os
import time
from pathlib import Path
from types import TracebackType

from plait.types.errors import StateError

PROBE_GRACE_S = 0.2
"""`lock_holder` holds the lock for microseconds; taking it waits so long before it believes that the run is in use."""


class RunLock:
    """Held from construction until `release`, the end of a `with` block, or the end of the process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        if not _try_lock(self._descriptor):
            holder = _read_holder(self._descriptor)
            os.close(self._descriptor)
            who = f"process {holder}" if holder else "another process"
            raise StateError(f"the run {path.parent} is in use by {who}.", "Wait for it to end, or end that process.")
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        if self._descriptor >= 0:
            os.ftruncate(self._descriptor, 0)
            os.close(self._descriptor)
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
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _read_holder(descriptor) or 0
    finally:
        os.close(descriptor)
    return None


def _try_lock(descriptor: int) -> bool:
    deadline_s = time.monotonic() + PROBE_GRACE_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > deadline_s:
                return False
            time.sleep(0.01)


def _read_holder(descriptor: int) -> int | None:
    text = os.pread(descriptor, 32, 0).strip()
    return int(text) if text.isdigit() else None
