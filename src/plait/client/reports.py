"""A run's report, from its directory."""

from collections.abc import Sequence
from pathlib import Path

from plait.observe.events import AnyEvent, RunEnded
from plait.observe.log import read_events
from plait.observe.report import TaskSamples, build_report, write_report
from plait.state.rundir import RunDirectory
from plait.state.samples import SampleRecord, read_samples


def write_run_report(directory: RunDirectory) -> Path:
    """Build RUN/report.html, finished or not. Raises StateError if the run cannot be read."""
    samples = [_task_samples(directory, task) for task in directory.list_tasks()]
    config = directory.config.read_text(encoding="utf-8") if directory.config.exists() else ""
    write_report(directory.report, build_report(_events(directory), samples, config))
    return directory.report


def _events(directory: RunDirectory) -> list[AnyEvent]:
    """The log; a run that ended without a word, as by a kill, is told to be interrupted."""
    events = list(read_events(directory.events)) if directory.events.exists() else []
    if events and not isinstance(events[-1], RunEnded) and directory.holder() is None:
        events.append(RunEnded(time_s=events[-1].time_s, status="interrupted"))
    return events


def _task_samples(directory: RunDirectory, task: str) -> TaskSamples:
    files = sorted(directory.samples_folder(task).glob("*.jsonl"))
    steps = [path for path in files if path.stem.isdecimal()]
    evaluations = [path for path in files if path.stem.startswith("evaluation-")]
    return TaskSamples(
        task=task,
        first=_read(steps[:1]),
        last=_read(steps[1:][-1:]),
        evaluation_first=_read(evaluations[:1]),
        evaluation_last=_read(evaluations[1:][-1:]),
    )


def _read(paths: Sequence[Path]) -> list[SampleRecord]:
    return [sample for path in paths for sample in read_samples(path)]
