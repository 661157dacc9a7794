import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.observe import log as log_module
from plait.observe.events import EvaluationDone, Note, StepCommitted, WorkerSpan, encode_event
from plait.observe.log import EventLog, follow_events, read_events, read_latest_events
from plait.types.errors import StateError


def note(number: int) -> Note:
    return Note(time_s=float(number), level="info", message=f"message {number}\nsecond line \u2028 é")


def step(number: int, loss: float = 0.0, phase: str = "rl", task: str = "a") -> StepCommitted:
    return StepCommitted(
        time_s=float(number), task=task, step=number, phase=phase, adapter_digest="", loss=loss, grad_norm=1.0, learning_rate=1e-3,
        num_sequences=1, num_trained_tokens=1,
    )  # fmt: skip


def write(path: Path, *events: Note | StepCommitted | EvaluationDone) -> None:
    with EventLog(path) as log:
        for event in events:
            log.append(event)


def test_what_is_appended_is_read_back_in_order(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    events = [note(1), step(1), WorkerSpan(time_s=2.0, worker="train-0", start_s=1.5), note(2)]
    write(path, *events)  # type: ignore[arg-type]
    assert list(read_events(path)) == events
    assert path.read_bytes().count(b"\n") == 4


def test_an_absent_measurement_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    write(path, step(1))
    assert "reward_mean" not in path.read_text()


def test_each_event_is_one_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writes: list[bytes] = []
    real_write = os.write

    def write_and_remember(descriptor: int, data: bytes) -> int:
        writes.append(bytes(data))
        return real_write(descriptor, data)

    monkeypatch.setattr(log_module.os, "write", write_and_remember)
    write(tmp_path / "events.jsonl", note(1), note(2))
    assert writes == [encode_event(note(1)) + b"\n", encode_event(note(2)) + b"\n"]


def test_every_torn_tail_is_ignored_when_read_and_cut_off_when_opened(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    write(path, note(1), note(2), note(3))
    whole = path.read_bytes()
    begins_last_line = len(encode_event(note(1)) + encode_event(note(2))) + 2
    for size_bytes in range(begins_last_line, len(whole)):
        path.write_bytes(whole[:size_bytes])
        assert list(read_events(path)) == [note(1), note(2)]
        write(path, note(4))
        assert list(read_events(path)) == [note(1), note(2), note(4)]


@given(junk=st.binary(max_size=300).filter(lambda data: b"\n" not in data), block=st.integers(1, 64))
def test_a_tail_of_any_bytes_and_length_is_cut_off(tmp_path_factory: pytest.TempPathFactory, junk: bytes, block: int) -> None:
    path = tmp_path_factory.mktemp("log") / "events.jsonl"
    write(path, note(1))
    with path.open("ab") as file:
        file.write(junk)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_module, "_TAIL_BLOCK_BYTES", block)
        write(path, note(2))
    assert list(read_events(path)) == [note(1), note(2)]


def test_kill_9_leaves_whole_lines_and_the_next_writer_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    code = (
        "import sys; from pathlib import Path; from plait.observe.log import EventLog; from plait.observe.events import Note\n"
        "log = EventLog(Path(sys.argv[1])); number = 0\n"
        "while True:\n  number += 1; log.append(Note(time_s=number, level='info', message='x' * 5000))\n"
        "  if number == 50: print('ready', flush=True)"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        writer.send_signal(signal.SIGKILL)
    with path.open("ab") as file:
        file.write(b'{"kind":"note","time_s":1')
    before = [event.time_s for event in read_events(path)]
    write(path, note(0))
    assert [event.time_s for event in read_events(path)] == [*before, 0.0]
    assert before == [float(number) for number in range(1, len(before) + 1)]
    assert len(before) >= 50


def test_a_full_disk_leaves_no_torn_line_and_the_log_usable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "events.jsonl"
    real_write = os.write

    def write_half(descriptor: int, data: bytes) -> int:
        real_write(descriptor, data[: len(data) // 2])
        raise OSError(28, "No space left on device")

    with EventLog(path) as log:
        log.append(note(1))
        with monkeypatch.context() as patch:
            patch.setattr(log_module.os, "write", write_half)
            with pytest.raises(OSError, match="No space"):
                log.append(note(2))
        log.append(note(3))
    assert list(read_events(path)) == [note(1), note(3)]


def test_a_short_write_is_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "events.jsonl"
    real_write = os.write
    monkeypatch.setattr(log_module.os, "write", lambda descriptor, data: real_write(descriptor, data[:7]))
    write(path, note(1), note(2))
    assert list(read_events(path)) == [note(1), note(2)]


def test_threads_do_not_mix_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    with EventLog(path) as log:

        def append_many() -> None:
            for number in range(100):
                log.append(note(number))

        threads = [threading.Thread(target=append_many) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(list(read_events(path))) == 400


def test_sync_syncs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(log_module.os, "fsync", synced.append)
    log = EventLog(tmp_path / "events.jsonl")
    log.sync()
    assert len(synced) == 1
    log.close()
    log.close()
    assert len(synced) == 2


def test_a_damaged_line_in_the_middle_is_an_error_that_names_it(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_bytes(encode_event(note(1)) + b"\n{nonsense}\n" + encode_event(note(2)) + b"\n")
    with pytest.raises(StateError, match=r"events\.jsonl, line 2 is not an event"):
        list(read_events(path))


def test_a_missing_log_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="no event log at"):
        list(read_events(tmp_path / "events.jsonl"))


def test_of_a_repeated_step_or_evaluation_the_last_counts(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    first = EvaluationDone(time_s=0, task="a", version=0, accuracy=0.1, num_questions=64, when="before")
    again = EvaluationDone(time_s=9, task="a", version=0, accuracy=0.2, num_questions=64, when="before")
    write(
        path,
        first,
        step(1, phase="warm_start"),
        step(1),
        step(2, loss=1.0),
        step(1, task="b"),
        note(1),
        note(1),
        step(2, loss=2.0),
        again,
    )
    latest = list(read_latest_events(path))
    assert latest == [step(1, phase="warm_start"), step(1), step(1, task="b"), note(1), note(1), step(2, loss=2.0), again]


def test_following_gives_whole_lines_only_and_ends_when_told(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    line = encode_event(note(2)) + b"\n"
    pieces = [line[:5], line[5:-1], line[-1:], encode_event(note(3)) + b"\n"]
    path.write_bytes(encode_event(note(1)) + b"\n")

    def write_a_piece(_: float) -> None:
        with path.open("ab") as file:
            file.write(pieces.pop(0))

    assert list(follow_events(path, should_stop=lambda: not pieces, wait=write_a_piece)) == [note(1), note(2), note(3)]


def test_following_outlives_a_torn_line_that_the_next_writer_cuts_off(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_bytes(encode_event(note(1)) + b"\n" + b'{"kind":"note","ti')
    waits: list[float] = []

    def reopen(wait_s: float) -> None:
        waits.append(wait_s)
        write(path, note(2))

    assert list(follow_events(path, should_stop=lambda: bool(waits), wait=reopen)) == [note(1), note(2)]
