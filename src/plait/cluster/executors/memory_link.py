"""The worker's side of a link within one process: frames go by reference."""

import queue
from collections.abc import Callable


class MemoryLink:
    """`on_frame` is called in the worker's thread with what it sends."""

    def __init__(self, on_frame: Callable[[bytes], None]) -> None:
        self._on_frame = on_frame
        self._inbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._is_closed = False

    # ---- the controller's threads

    def put(self, frame: bytes) -> None:
        self._inbox.put(frame)

    def close(self) -> None:
        """From here on the worker gets EOFError, frames that wait notwithstanding."""
        self._is_closed = True
        self._inbox.put(None)  # Wakes who waits.

    # ---- the worker's thread: a WorkerLink

    def send(self, message: bytes) -> None:
        self._check_open()
        self._on_frame(message)

    def receive(self, timeout_s: float | None = None) -> bytes | None:
        self._check_open()
        try:
            frame = self._inbox.get_nowait() if timeout_s == 0 else self._inbox.get(timeout=timeout_s)
        except queue.Empty:
            return None
        self._check_open()
        return frame

    def _check_open(self) -> None:
        if self._is_closed:
            raise EOFError("the controller has closed the link")
