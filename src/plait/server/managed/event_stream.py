"""A run's event log as server-sent events. The id of an event is its end in the log, so a reader goes on from where it was."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec

from plait.server.errors import ServiceError

KEEP_ALIVE_S = 15.0
"""A comment is sent after so long without an event, so that nobody on the way takes the connection for dead."""
READ_BYTES = 2**18


class Signal:
    """Wakes all that wait, each time that something is new."""

    def __init__(self) -> None:
        self._waiting: set[asyncio.Future[None]] = set()

    def wait(self) -> asyncio.Future[None]:
        """Ask before looking, so that nothing is missed in between."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(future)
        future.add_done_callback(self._waiting.discard)
        return future

    def send(self) -> None:
        for future in list(self._waiting):
            if not future.done():
                future.set_result(None)


class _Kind(msgspec.Struct):
    kind: str


async def stream_events(path: Path, start: int, signal: Signal, end: Callable[[], str | None]) -> AsyncIterator[bytes]:
    """From offset `start` on, until `end` says what the run came to and nothing is left; then one event "end"."""
    offset = start
    while True:
        news, ended = signal.wait(), end()
        try:
            lines = await asyncio.to_thread(read_lines, path, offset)
            for line in lines:
                offset += len(line)
                yield encode(offset, line)
            if lines:
                continue
            if ended is not None:
                yield f"event: end\nid: {offset}\ndata: {msgspec.json.encode({'state': ended}).decode()}\n\n".encode()
                return
            await asyncio.wait((news,), timeout=KEEP_ALIVE_S)
            if not news.done():
                yield b": nothing new\n\n"
        finally:
            news.cancel()


def read_lines(path: Path, offset: int) -> list[bytes]:
    """Complete lines from `offset` on, some of them if there are many."""
    try:
        with path.open("rb") as file:
            file.seek(offset)
            data = file.read(READ_BYTES)
            while data and b"\n" not in data and (more := file.read(READ_BYTES)):
                data += more
    except FileNotFoundError:
        return []
    return data[: data.rfind(b"\n") + 1].splitlines(keepends=True)


def encode(offset: int, line: bytes) -> bytes:
    kind = msgspec.json.decode(line, type=_Kind).kind
    return b"event: %s\nid: %d\ndata: %s\n\n" % (kind.encode(), offset, line.rstrip(b"\n"))


def start_of(last_event_id: str | None, path: Path) -> int:
    """Where to go on after an event. Raises ServiceError if the log has no event of that id."""
    if not last_event_id:
        return 0
    try:
        offset = int(last_event_id) if last_event_id.isascii() and last_event_id.isdecimal() and len(last_event_id) < 19 else -1
        if offset == 0:
            return 0
        with path.open("rb") as file:
            file.seek(max(offset - 1, 0))
            if offset > 0 and file.read(1) == b"\n":
                return offset
    except FileNotFoundError:
        pass
    raise ServiceError(f"Last-Event-ID is {last_event_id[:40]!r}: no event has that id.", "Leave it out to start anew.")
