"""From what a killed run left behind to what is to be done next.

- A step counts iff its record is valid; the event log and the sample files follow the records, never the other way round.
- A crash between a record's rename and its event leaves the event out: it is appended from the record.
- Events of steps past the latest valid record are void: the step is done again, and a reader keeps the last event of a key.

`plan_task` decides and is pure; `plan_recovery` reads the directory.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from plait.observe.events import AnyEvent, StepCommitted
from plait.state.durable import remove_temporaries
from plait.state.records import LatestRecord, latest_record, list_steps, read_record
from plait.state.rundir import RunDirectory
from plait.state.step_record import StepRecord
from plait.state.writer_lock import WriterLock
from plait.types.errors import StateError


class TaskRecovery(msgspec.Struct, frozen=True, kw_only=True):
    """How one task goes on. `record` None: from the start (`version` and `data_cursor` are 0)."""

    task: str
    record: StepRecord | None
    missing_events: tuple[StepCommitted, ...] = ()
    """To be appended to the log before anything else, ascending."""
    void_steps: tuple[int, ...] = ()
    """Steps whose events are in the log though their records cannot be used; they are done again."""
    uncommitted_samples: tuple[int, ...] = ()
    """Steps that have a sample file but no record; the files will be overwritten."""
    damage: tuple[str, ...] = ()
    """Why newer records are not used; to be shown to the user."""

    @property
    def version(self) -> int:
        return self.record.step if self.record else 0

    @property
    def data_cursor(self) -> int:
        return self.record.data_cursor if self.record else 0


def plan_task(
    task: str, latest: LatestRecord, committed: Iterable[StepRecord], logged_steps: Iterable[int], sample_steps: Iterable[int]
) -> TaskRecovery:
    """Decide from the valid records (`committed`, among them the latest), the log's steps and the steps with sample files."""
    logged = set(logged_steps)
    version = latest.record.step if latest.record else 0
    records = sorted((record for record in committed if record.step <= version), key=lambda record: record.step)
    return TaskRecovery(
        task=task,
        record=latest.record,
        missing_events=tuple(record.event for record in records if record.event and record.step not in logged),
        void_steps=tuple(sorted(step for step in logged if step > version)),
        uncommitted_samples=tuple(sorted(step for step in sample_steps if step > version)),
        damage=latest.damage,
    )


def plan_recovery(directory: RunDirectory, tasks: Sequence[str], events: Iterable[AnyEvent]) -> dict[str, TaskRecovery]:
    """A plan for each task of the run, from its records and the events of its log."""
    logged: dict[str, list[int]] = {}
    for event in events:
        if isinstance(event, StepCommitted):
            logged.setdefault(event.task, []).append(event.step)
    return {task: _recover_task(directory, task, logged.get(task, [])) for task in tasks}


def check_base(record: StepRecord, base_digest: str) -> None:
    """Refuse to go on with another base model than the one the adapter was trained on."""
    if record.base_digest != base_digest:
        raise StateError(
            f"task {record.task!r} was trained on base {record.base_digest}; the model now has digest {base_digest}.",
            "Put the same model back at the path that the run's config.toml names.",
        )


def clean_up(directory: RunDirectory, tasks: Iterable[str]) -> None:
    """Remove the temporaries of a killed writer, once its worker, which outlives it a little, is gone. Hold the run's lock."""
    remove_temporaries(directory.path)
    for task in tasks:
        _remove_steps_temporaries(directory.steps_folder(task))
        remove_temporaries(directory.samples_folder(task))


def _remove_steps_temporaries(folder: Path) -> None:
    if not folder.is_dir():
        return
    lock = WriterLock(folder)
    try:
        remove_temporaries(folder)
    finally:
        lock.release()


def _recover_task(directory: RunDirectory, task: str, logged_steps: Sequence[int]) -> TaskRecovery:
    folder = directory.steps_folder(task)
    latest = latest_record(folder)
    unlogged = _unlogged_records(folder, latest, logged_steps)
    return plan_task(task, latest, unlogged, logged_steps, _sample_steps(directory.samples_folder(task)))


def _unlogged_records(folder: Path, latest: LatestRecord, logged_steps: Sequence[int]) -> list[StepRecord]:
    """Only these need reading again: a record that is logged has nothing to tell."""
    if latest.record is None:
        return []
    wanted = [step for step in list_steps(folder) if step < latest.record.step and step not in set(logged_steps)]
    return [*_read_valid(folder, wanted), latest.record]


def _read_valid(folder: Path, steps: Iterable[int]) -> list[StepRecord]:
    records = []
    for step in steps:
        try:
            records.append(read_record(folder, step))
        except StateError:  # An old damaged record is nobody's resume point; its event is in the log or lost with it.
            continue
    return records


def _sample_steps(folder: Path) -> list[int]:
    return [int(path.stem) for path in folder.glob("*.jsonl") if path.stem.isdecimal()]
