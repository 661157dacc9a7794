"""A log as server-sent events: nothing twice, nothing left out, wherever a reader goes on."""

import asyncio
from pathlib import Path

import pytest

from plait.client.server_link import ServerEvent, read_events
from plait.observe.events import Note
from plait.observe.log import EventLog
from plait.server.errors import ServiceError
from plait.server.managed import event_stream
from plait.server.managed.event_stream import Signal, start_of, stream_events


async def read(path: Path, start: int, ended: str | None = "done") -> list[ServerEvent]:
    parts = [part async for part in stream_events(path, start, Signal(), lambda: ended)]
    return list(read_events(iter(b"".join(parts).splitlines(keepends=True))))


def write(path: Path, count: int) -> None:
    with EventLog(path) as log:
        for index in range(count):
            log.append(Note(time_s=float(index), level="info", message=f"line\n{index} é"))


def test_a_reader_goes_on_after_any_event(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "READ_BYTES", 64)  # Less than a line, so that reading in pieces is tested.
    path = tmp_path / "events.jsonl"
    write(path, 9)
    events = asyncio.run(read(path, 0))
    assert [event.kind for event in events] == ["note"] * 9 + ["end"]
    for index, event in enumerate(events):
        assert asyncio.run(read(path, start_of(event.id, path))) == events[index + 1 :] + (
            events[-1:] if event.kind == "end" else []
        )


def test_a_torn_last_line_waits(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    write(path, 2)
    with path.open("ab") as file:
        file.write(b'{"kind":"no')
    assert [event.kind for event in asyncio.run(read(path, 0))] == ["note", "note", "end"]


@pytest.mark.parametrize("last_id", ["1", "-1", "999999", "x", "1e3", "٣", "9" * 40])
def test_an_id_that_no_event_has_is_refused(tmp_path: Path, last_id: str) -> None:
    path = tmp_path / "events.jsonl"
    write(path, 2)
    with pytest.raises(ServiceError, match="Last-Event-ID"):
        start_of(last_id, path)
    assert start_of(None, path) == start_of("", path) == start_of("0", path) == 0


def test_new_events_wake_the_reader_and_silence_is_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "KEEP_ALIVE_S", 0.05)
    path, signal = tmp_path / "events.jsonl", Signal()

    async def follow() -> list[bytes]:
        state: list[str | None] = [None]
        parts: list[bytes] = []
        async with asyncio.timeout(120):
            async for part in stream_events(path, 0, signal, lambda: state[0]):
                parts.append(part)
                if part.startswith(b": ") and len(parts) == 1:
                    write(path, 1)
                    signal.send()
                elif part.startswith(b"event: note"):
                    state[0] = "done"
                    signal.send()
        return parts

    parts = asyncio.run(follow())
    assert parts[0].startswith(b": ")
    assert [part.split(b"\n")[0] for part in parts if not part.startswith(b":")] == [b"event: note", b"event: end"]
    assert not signal._waiting
