"""A run's report, from its directory."""

from collections.abc import Sequence
from pathlib import Path

from plait.observe.log import read_events
from plait.observe.report import TaskSamples, build_report, write_report
from plait.state.rundir import RunDirectory
from plait.state.samples import SampleRecord, read_samples


def write_run_report(directory: RunDirectory) -> Path:
    """Build RUN/report.html, finished or not. Raises StateError if the run cannot be read."""
    samples = [_task_samples(directory, task) for task in directory.list_tasks()]
    config = directory.config.read_text(encoding="utf-8") if directory.config.exists() else ""
    events = read_events(directory.events) if directory.events.exists() else ()
    write_report(directory.report, build_report(events, samples, config))
    return directory.report


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
