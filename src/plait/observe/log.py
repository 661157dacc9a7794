"""The event log of a run: `events.jsonl`, one JSON event per line.

- One writer at a time (the run's lock sees to it), any number of readers at any time.
- An event is one write to a file opened for appending, so a kill leaves at most one torn line, the last.
- A line counts once its newline is there: the writer cuts off a torn tail when it opens the file, readers ignore it.
- Reading streams; nothing here holds more than one line (`read_latest_events`: one number per step and evaluation).
"""

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType

import msgspec

from plait.observe.events import AnyEvent, EvaluationDone, Event, StepCommitted, decode_event, encode_event
from plait.types.errors import StateError

FOLLOW_INTERVAL_S = 0.25
"""How often `follow_events` looks for new lines."""

_TAIL_BLOCK_BYTES = 65536

EventKey = tuple[str, str, int, str]


def event_key(event: Event) -> EventKey | None:
    """What an event is a fact about; of several with one key the last holds. None: every such event counts."""
    if isinstance(event, StepCommitted):
        return ("step", event.task, event.step, event.phase)
    if isinstance(event, EvaluationDone):
        return ("evaluation", event.task, event.version, event.when)
    return None


class EventLog:
    """Appends events to `path`, which is made if it is not there. Safe to call from several threads."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        os.ftruncate(self._descriptor, _complete_bytes(self._descriptor))

    def append(self, event: Event) -> None:
        """Write one line. It survives the process at once and the machine after `sync`. Raises OSError, leaving no torn line."""
        line = encode_event(event) + b"\n"
        with self._lock:
            size_bytes = os.fstat(self._descriptor).st_size
            try:
                _write_all(self._descriptor, line)
            except OSError:
                os.ftruncate(self._descriptor, size_bytes)
                raise

    def sync(self) -> None:
        """Return once everything appended so far is on disk."""
        os.fsync(self._descriptor)

    def close(self) -> None:
        if self._descriptor >= 0:
            self.sync()
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> "EventLog":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def read_events(path: Path) -> Iterator[AnyEvent]:
    """All events in the order they were written, repeated facts included. Raises StateError naming a line that is no event."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        raise StateError(f"no event log at {path}.", "Name the folder of a run, such as runs/NAME.") from None
    with file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                return
            yield _decode(line, number, path)


def read_latest_events(path: Path) -> Iterator[AnyEvent]:
    """Like `read_events`, but of the events with one key only the last."""
    last_number: dict[EventKey, int] = {}
    for number, event in enumerate(read_events(path)):
        if (key := event_key(event)) is not None:
            last_number[key] = number
    for number, event in enumerate(read_events(path)):
        key = event_key(event)
        if key is None or last_number.get(key, number) == number:
            yield event


def follow_events(path: Path, should_stop: Callable[[], bool], wait: Callable[[float], None] = time.sleep) -> Iterator[AnyEvent]:
    """All events so far, then each new one as it is written, until `should_stop()` is true and no complete line is left."""
    with path.open("rb") as file:
        number, torn = 0, b""
        while True:
            stopping = should_stop()
            while chunk := file.readline():
                torn += chunk
                if torn.endswith(b"\n"):
                    number += 1
                    yield _decode(torn, number, path)
                    torn = b""
            if stopping:
                return
            if torn:
                file.seek(-len(torn), os.SEEK_CUR)
                torn = b""
            wait(FOLLOW_INTERVAL_S)


def _decode(line: bytes, number: int, path: Path) -> AnyEvent:
    try:
        return decode_event(line)
    except msgspec.MsgspecError as error:
        raise StateError(
            f"{path}, line {number} is not an event this version of Plait knows: {error}.",
            "Use the version that wrote the run, or delete the line if the disk damaged it.",
        ) from error


def _write_all(descriptor: int, data: bytes) -> None:
    written_bytes = os.write(descriptor, data)
    while written_bytes < len(data):
        written_bytes += os.write(descriptor, data[written_bytes:])


def _complete_bytes(descriptor: int) -> int:
    """Size up to and including the last newline."""
    end = os.fstat(descriptor).st_size
    while end > 0:
        start = max(0, end - _TAIL_BLOCK_BYTES)
        newline = os.pread(descriptor, end - start, start).rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        end = start
    return 0
