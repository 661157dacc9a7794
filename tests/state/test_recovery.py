"""Resuming follows the records; the log and the samples follow them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.observe.events import AnyEvent, Note
from plait.state.records import ADAPTER_FILE, LatestRecord
from plait.state.recovery import TaskRecovery, check_base, clean_up, plan_recovery, plan_task
from plait.state.retention import thin_records
from plait.state.rundir import RunDirectory
from plait.state.step_record import StepRecord
from plait.types.errors import StateError

Write = Callable[..., StepRecord]
Log = Callable[..., list[AnyEvent]]


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return RunDirectory.create(tmp_path, "demo", "")


@pytest.fixture
def log(make: Any) -> Log:
    def make_log(*steps: int, task: str = "add") -> list[AnyEvent]:
        return [Note(time_s=0.0, level="info", message="hello"), *(make.event(task, step) for step in steps)]

    return make_log


def test_fresh_task_starts_from_nothing(run: RunDirectory) -> None:
    plan = plan_recovery(run, ["add"], [])["add"]
    assert plan == TaskRecovery(task="add", record=None)
    assert (plan.version, plan.data_cursor) == (0, 0)


def test_crash_between_rename_and_append(run: RunDirectory, write: Write, log: Log) -> None:
    for step in (1, 2, 3):
        write(run.steps_folder("add"), step)
    plan = plan_recovery(run, ["add"], log(1, 2))["add"]
    assert [event.step for event in plan.missing_events] == [3]
    assert plan.missing_events[0].adapter_digest == plan.record.adapter_digest  # type: ignore[union-attr]
    assert (plan.version, plan.data_cursor, plan.void_steps) == (3, 24, ())


def test_lost_log_is_rebuilt_from_what_records_are_left(run: RunDirectory, write: Write) -> None:
    for step in range(6):
        write(run.steps_folder("add"), step)
    thin_records(run.steps_folder("add"), 2)
    plan = plan_recovery(run, ["add"], [])["add"]
    assert [event.step for event in plan.missing_events] == [2, 4, 5]


def test_damaged_newest_record_voids_its_event(run: RunDirectory, write: Write, log: Log) -> None:
    for step in (1, 2, 3):
        write(run.steps_folder("add"), step)
    (run.step_folder("add", 3) / ADAPTER_FILE).write_bytes(b"")
    plan = plan_recovery(run, ["add"], log(1, 2, 3))["add"]
    assert (plan.version, plan.data_cursor) == (2, 16)
    assert plan.void_steps == (3,)
    assert plan.missing_events == ()
    assert "step 3 is not used" in plan.damage[0]


def test_samples_of_uncommitted_steps(run: RunDirectory, write: Write, log: Log) -> None:
    write(run.steps_folder("add"), 1)
    run.samples_folder("add").mkdir()
    for path in (run.samples_file("add", 1), run.samples_file("add", 2), run.evaluation_file("add", 1)):
        path.write_text("")
    assert plan_recovery(run, ["add"], log(1))["add"].uncommitted_samples == (2,)


def test_tasks_do_not_mix(run: RunDirectory, write: Write, log: Log) -> None:
    write(run.steps_folder("add"), 1)
    write(run.steps_folder("gcd"), 1, task="gcd")
    plans = plan_recovery(run, ["add", "gcd", "new"], log(1, task="gcd"))
    assert [len(plans[name].missing_events) for name in ("add", "gcd", "new")] == [1, 0, 0]
    assert plans["new"].record is None


def test_another_base_is_refused(make: Any) -> None:
    record = make.record(2)
    check_base(record, "base")
    with pytest.raises(StateError, match=r"'add' was trained on base base; the model now has digest other"):
        check_base(record, "other")


def test_clean_up_removes_only_temporaries(run: RunDirectory, write: Write) -> None:
    write(run.steps_folder("add"), 1)
    (run.steps_folder("add") / ".tmp-000002").mkdir()
    (run.path / ".tmp-config.toml").write_text("")
    clean_up(run, ["add", "new"])
    assert sorted(entry.name for entry in run.path.rglob("*") if entry.name.startswith(".tmp")) == []
    assert run.step_folder("add", 1).is_dir()
    assert run.config.is_file()


@given(num_records=st.integers(0, 8), logged=st.sets(st.integers(1, 10)), sampled=st.sets(st.integers(1, 10)))
def test_no_step_is_lost_or_counted_twice(num_records: int, logged: set[int], sampled: set[int], make: Any) -> None:
    records = [make.record(step) for step in range(1, num_records + 1)]
    plan = plan_task("add", LatestRecord(records[-1] if records else None), records, logged, sampled)
    appended = {event.step for event in plan.missing_events}
    assert (logged - set(plan.void_steps)) | appended == set(range(1, num_records + 1))
    assert not logged & appended
    assert plan.version == num_records
    assert set(plan.uncommitted_samples) == {step for step in sampled if step > num_records}
