"""`plait report`: writes a run's report.html."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from plait.observe.report import TaskSamples
    from plait.state.rundir import RunDirectory
    from plait.state.samples import SampleRecord


def report(
    run: Annotated[str | None, typer.Argument(help="Name or folder of the run; without it, the newest.")] = None,
    open_in_browser: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
    runs: Annotated[Path, typer.Option("--runs", help="Folder that holds the runs.")] = Path("runs"),
) -> None:
    """Write RUN/report.html (curves, timeline, answers) and print its path."""
    from plait.state.rundir import find_run

    path = write_run_report(find_run(run, runs))
    print(path)
    if open_in_browser:
        typer.launch(path.as_uri())


def write_run_report(directory: "RunDirectory") -> Path:
    """Build the report of a run, finished or not, from its directory. Raises StateError if the run cannot be read."""
    from plait.observe.log import read_events
    from plait.observe.report import build_report, write_report

    samples = [_task_samples(directory, task) for task in directory.list_tasks()]
    config = directory.config.read_text(encoding="utf-8") if directory.config.exists() else ""
    events = read_events(directory.events) if directory.events.exists() else ()
    write_report(directory.report, build_report(events, samples, config))
    return directory.report


def _task_samples(directory: "RunDirectory", task: str) -> "TaskSamples":
    from plait.observe.report import TaskSamples

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


def _read(paths: "list[Path]") -> "list[SampleRecord]":
    from plait.state.samples import read_samples

    return [sample for path in paths for sample in read_samples(path)]
