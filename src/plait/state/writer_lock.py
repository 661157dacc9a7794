"""One writer at a time for a task's records: a worker that outlives its killed controller must end before another takes over."""

import fcntl
import os
import time
from pathlib import Path

from plait.types.errors import StateError

WRITER_FILE = ".writer"
ORPHAN_GRACE_S = 120.0
"""A worker ends within seconds of its controller; one slice of training may come first. What a machine that went away had locked on
an NFS server is free after the server's lease, 90 s as a rule."""
CHECK_INTERVAL_S = 0.02


class WriterLock:
    """An exclusive `flock` on a folder of records, held until `release` or the end of the process."""

    def __init__(self, directory: Path, timeout_s: float = ORPHAN_GRACE_S) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._descriptor = os.open(directory / WRITER_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        deadline_s = time.monotonic() + timeout_s
        while not self._try():
            if time.monotonic() > deadline_s:
                self.release()
                raise StateError(f"another process has been writing to {directory} for {timeout_s:.0f} s.", "End that process.")
            time.sleep(CHECK_INTERVAL_S)

    def _try(self) -> bool:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def release(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
