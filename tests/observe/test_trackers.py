import builtins
import json
import struct
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from plait.config.run import TrackingSettings
from plait.observe import events as e
from plait.observe import trackers as trackers_module
from plait.observe.trackers import TrackerFollower, make_followers, step_values
from tests.observe.sample_run import TASK_NAMES, sample_events

Point = tuple[str, int, dict[str, float]]
HANGS_S = 60.0
"""A tracker that hangs does so for so long."""


class ListTracker:
    def __init__(self) -> None:
        self.points: list[Point] = []
        self.is_closed = False

    def record(self, task: str, step: int, time_s: float, values: Mapping[str, float]) -> None:
        self.points.append((task, step, dict(values)))

    def close(self) -> None:
        self.is_closed = True

    def steps(self, task: str, name: str) -> list[int]:
        return [step for point_task, step, values in self.points if point_task == task and name in values]


def follow(events: list[e.AnyEvent], history: list[e.AnyEvent] | None = None) -> ListTracker:
    tracker, notes = ListTracker(), list[e.Note]()
    follower = TrackerFollower("test", lambda start: tracker, notes.append, history or ())
    for event in events:
        follower.on_event(event)
    follower.close()
    assert notes == []
    assert tracker.is_closed
    return tracker


def follow_for_real(settings: TrackingSettings, folder: Path, events: list[e.AnyEvent], history: list[e.AnyEvent]) -> None:
    notes: list[e.Note] = []
    (follower,) = make_followers(settings, folder, notes.append, lambda: history)
    for event in events:
        follower.on_event(event)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trackers_module, "CLOSE_TIMEOUT_S", 120.0)
        follower.close()
    assert notes == []


def wandb_rows(folder: Path, name: str) -> list[dict[str, Any]]:
    """Rows with a value of that name in the one offline run, once W&B's own process has written its last record."""
    from wandb.proto.wandb_internal_pb2 import Record  # type: ignore[attr-defined]

    (file,) = (folder / "wandb").glob("offline-run-*/*.wandb")
    deadline_s = time.monotonic() + 120
    while True:
        records = [Record.FromString(record) for record in leveldb_records(file.read_bytes()[7:], offset=7)]
        if any(record.WhichOneof("record_type") == "exit" for record in records):
            break
        assert time.monotonic() < deadline_s, "W&B never wrote the end of the run"
        time.sleep(0.05)
    rows = [
        {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item} for record in records
    ]
    return [row for row in rows if name in row]


def leveldb_records(data: bytes, offset: int) -> list[bytes]:
    """The records of a LevelDB log, the format of a .wandb file; `offset` is where `data` begins in the file."""
    records, record, position = [], b"", 0
    while position + 7 <= len(data):
        left_in_block = 32768 - (position + offset) % 32768
        if left_in_block < 7:
            position += left_in_block
            continue
        _, length, kind = struct.unpack_from("<IHB", data, position)
        record += data[position + 7 : position + 7 + length]
        position += 7 + length
        if kind in (1, 4) and position <= len(data):
            records.append(record)
            record = b""
    return records


def failing_follower(make: Callable[[e.RunStarted], Any]) -> tuple[list[e.Note], float]:
    notes: list[e.Note] = []
    follower = TrackerFollower("test", make, notes.append, clock=lambda: 7.0)
    longest_s = 0.0
    for event in sample_events():
        started_s = time.perf_counter()
        follower.on_event(event)
        longest_s = max(longest_s, time.perf_counter() - started_s)
    follower.close()
    follower.close()
    return notes, longest_s


def test_every_step_and_evaluation_arrives_once_and_in_order() -> None:
    tracker = follow(list(sample_events()))
    for task in TASK_NAMES:
        assert tracker.steps(task, "loss") == list(range(1, 21))
        assert tracker.steps(task, "accuracy") == [0, 5, 10, 15, 20]


def test_what_was_not_measured_is_not_sent() -> None:
    tracker = follow(list(sample_events()))
    assert tracker.steps("calculator", "reward_mean") == list(range(4, 21))
    warm_up = step_values(
        next(event for event in sample_events() if isinstance(event, e.StepCommitted) and event.phase == "warm_start")
    )
    assert not {"reward_mean", "kl_to_base", "num_sampled_tokens"} & set(warm_up)
    rl = step_values(next(event for event in sample_events() if isinstance(event, e.StepCommitted) and event.phase == "rl"))
    assert rl["stop/length"] == 4.0


def test_resume_appends_one_curve_even_if_the_first_tracker_lost_everything() -> None:
    events = list(sample_events())
    cut = next(number for number, event in enumerate(events) if isinstance(event, e.RunStarted) and event.resumed)
    repeated = [event for event in events[:cut] if isinstance(event, e.StepCommitted)][-2:]
    tracker = follow([events[cut], *repeated, *events[cut + 1 :]], history=events[:cut])
    for task in TASK_NAMES:
        assert tracker.steps(task, "loss") == list(range(1, 21))


@pytest.mark.parametrize("when", ["make", "record", "close"])
def test_a_tracker_that_raises_is_one_warning_and_nothing_else(when: str) -> None:
    class Broken(ListTracker):
        def record(self, task: str, step: int, time_s: float, values: Mapping[str, float]) -> None:
            if when == "record":
                raise ConnectionError("server is down")

        def close(self) -> None:
            if when == "close":
                raise ConnectionError("server is down")

    def make(start: e.RunStarted) -> Broken:
        if when == "make":
            raise ConnectionError("server is down")
        return Broken()

    notes, _ = failing_follower(make)
    assert [note.level for note in notes] == ["warning"]
    assert notes[0].message == "test is off for the rest of the run: ConnectionError: server is down. The event log has everything."
    assert notes[0].time_s == 7.0


def test_a_missing_package_is_one_warning_that_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    real_import = builtins.__import__

    def import_without(name: str, *arguments: Any, **options: Any) -> Any:
        if name.split(".")[0] in ("tensorboard", "wandb"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real_import(name, *arguments, **options)

    for name in ("plait.observe.tensorboard_tracker", "plait.observe.wandb_tracker"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr(builtins, "__import__", import_without)
    notes: list[e.Note] = []
    followers = make_followers(TrackingSettings(tensorboard=True, wandb=True), tmp_path, notes.append)
    for event in sample_events():
        for follower in followers:
            follower.on_event(event)
    for follower in followers:
        follower.close()
    assert sorted(note.message.split(" is off")[0] for note in notes) == ["TensorBoard", "Weights & Biases"]
    assert all("is not installed (pip install 'plait[trackers]')" in note.message for note in notes)


def test_a_tracker_that_hangs_blocks_neither_the_run_nor_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trackers_module, "CLOSE_TIMEOUT_S", 0.2)
    release = threading.Event()

    class Hanging(ListTracker):
        def record(self, task: str, step: int, time_s: float, values: Mapping[str, float]) -> None:
            release.wait(HANGS_S)

    started_s = time.perf_counter()
    notes, longest_s = failing_follower(lambda start: Hanging())
    release.set()
    assert longest_s < HANGS_S / 2
    assert time.perf_counter() - started_s < HANGS_S
    assert [note.message.split(": ")[1].split(".")[0] for note in notes] == ["it did not finish within 0 s"]


def test_a_tracker_that_cannot_keep_up_is_turned_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trackers_module, "MAX_QUEUED_EVENTS", 5)
    monkeypatch.setattr(trackers_module, "CLOSE_TIMEOUT_S", 0.2)
    release = threading.Event()

    class Slow(ListTracker):
        def record(self, task: str, step: int, time_s: float, values: Mapping[str, float]) -> None:
            release.wait(HANGS_S)

    notes, _ = failing_follower(lambda start: Slow())
    release.set()
    assert len(notes) == 1
    assert "it is 5 events behind" in notes[0].message


def test_none_is_made_when_none_is_wanted(tmp_path: Path) -> None:
    assert make_followers(TrackingSettings(), tmp_path, lambda note: None) == []
    assert list(tmp_path.iterdir()) == []


def test_tensorboard_holds_one_curve_after_a_resume(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = list(sample_events())
    cut = next(number for number, event in enumerate(events) if isinstance(event, e.RunStarted) and event.resumed)
    for part, history in ((events[:cut], []), (events[cut:], events[:cut])):
        follow_for_real(TrackingSettings(tensorboard=True), tmp_path, part, history)
    accumulator = EventAccumulator(str(tmp_path / "tensorboard" / "gcd"), size_guidance={"tensors": 0})
    accumulator.Reload()
    assert [point.step for point in accumulator.Tensors("reward_mean")] == list(range(1, 21))


def test_wandb_writes_one_offline_run_however_often_it_is_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    pytest.importorskip("wandb")
    monkeypatch.delenv("WANDB_MODE", raising=False)
    events = list(sample_events(num_steps=3, resume_after=2))
    cut = next(number for number, event in enumerate(events) if isinstance(event, e.RunStarted) and event.resumed)
    for part, history in ((events[:cut], []), (events[cut:], events[:cut])):
        follow_for_real(TrackingSettings(wandb=True), tmp_path / "run" / "tracking", part, history)
    assert [row["gcd/step"] for row in wandb_rows(tmp_path / "run" / "tracking", "gcd/loss")] == [1, 2, 3]
    evaluations = wandb_rows(tmp_path / "run" / "tracking", "gcd/accuracy")
    assert [row["gcd/version"] for row in evaluations] == [0]
    assert "gcd/step" not in evaluations[0], "what was not measured is not written"
    assert capfd.readouterr().out == ""
