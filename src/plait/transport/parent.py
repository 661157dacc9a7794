"""The child's side of a link to its parent: synchronous, for plain loops.

- `receive` gives whole frames, whatever pieces they arrive in; a part that arrived before a timeout is kept.
- A child never outlives its parent: `receive` raises EOFError, and a watcher thread kills the process (and its group)
  PARENT_GONE_GRACE_S after the parent's end of the link is closed, even if the main thread is stuck in other code.
"""

import argparse
import contextlib
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Sequence

from plait.transport.frames import HEADER, check_length, encode_frame
from plait.types.module_loading import end_loading

RECEIVE_BYTES = 2**18
PARENT_GONE_GRACE_S = 5.0
"""Time a child has to end by itself once its parent is gone."""
PARENT_CHECK_S = 2.0
"""How often the watcher also compares the parent's process id: a fork of the parent may hold the link open."""


class ParentLink:
    """Frames to and from the parent. `send` may be called by any thread, `receive` by one."""

    def __init__(self, link: socket.socket, arguments: Sequence[str] = ()) -> None:
        self.arguments = tuple(arguments)
        """The command line without the link's own option."""
        self._socket = link
        self._buffer = bytearray()
        self._send_lock = threading.Lock()
        self._closed = False

    @classmethod
    def from_arguments(cls, arguments: Sequence[str] | None = None) -> "ParentLink":
        """Take the link over from `--link-fd N` of the command line, and start watching the parent. All modules are loaded."""
        end_loading()
        parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
        parser.add_argument("--link-fd", type=int, required=True)
        parsed, rest = parser.parse_known_args(sys.argv[1:] if arguments is None else arguments)
        os.set_inheritable(parsed.link_fd, False)
        link = cls(socket.socket(fileno=parsed.link_fd), rest)
        threading.Thread(target=_watch_parent, args=(parsed.link_fd,), name="parent-watcher", daemon=True).start()
        return link

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, message: bytes) -> None:
        """Block until the frame is handed over; raise EOFError when the parent is gone."""
        frame = encode_frame(message)
        with self._send_lock:
            try:
                self._socket.sendall(frame)
            except (BrokenPipeError, ConnectionResetError) as error:
                raise EOFError("the parent process is gone") from error

    def receive(self, timeout_s: float | None = None) -> bytes | None:
        """Return the next frame; None when none is whole within `timeout_s` (0 polls, None waits for ever).

        Raise EOFError when the parent is gone and no whole frame is left.
        """
        deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
        while (frame := self._take_frame()) is None:
            if self._closed:
                raise EOFError("the parent process is gone")
            if not self._wait_readable(deadline_s):
                return None
            self._read_some()
        return frame

    def close(self) -> None:
        self._socket.close()

    def _take_frame(self) -> bytes | None:
        if len(self._buffer) < HEADER.size:
            return None
        end = HEADER.size + check_length(HEADER.unpack_from(self._buffer)[0])
        if len(self._buffer) < end:
            return None
        frame = bytes(memoryview(self._buffer)[HEADER.size : end])
        del self._buffer[:end]
        return frame

    def _wait_readable(self, deadline_s: float | None) -> bool:
        poller = select.poll()
        poller.register(self._socket, select.POLLIN)
        remaining_ms = None if deadline_s is None else max(0.0, (deadline_s - time.monotonic()) * 1000)
        return bool(poller.poll(remaining_ms))

    def _read_some(self) -> None:
        try:
            data = self._socket.recv(RECEIVE_BYTES)
        except ConnectionResetError:
            data = b""
        self._buffer += data
        self._closed = not data


def _watch_parent(link_fd: int) -> None:
    """Kill this process's group when the parent is gone and the grace is over. Never returns otherwise."""
    parent_id = os.getppid()
    poller = select.poll()
    poller.register(link_fd, 0)
    while not poller.poll(PARENT_CHECK_S * 1000) and os.getppid() == parent_id:
        pass
    time.sleep(PARENT_GONE_GRACE_S)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if os.getpgrp() == os.getpid():
            os.killpg(0, signal.SIGKILL)
    os._exit(1)
