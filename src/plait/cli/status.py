"""`plait status`: the runs there are, or the tasks and workers of one."""

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from plait.cli.output import print_json

if TYPE_CHECKING:
    from rich.console import Console

    from plait.observe.snapshot import RunSnapshot
    from plait.state.rundir import RunDirectory

UNREADABLE = "unreadable"
PLAIN_WIDTH = 120
"""Width of the tables where there is no terminal."""


def status(
    run: Annotated[str | None, typer.Argument(help="Name or folder of a run; without it, all runs are listed.")] = None,
    runs: Annotated[Path, typer.Option("--runs", help="Folder that holds the runs.")] = Path("runs"),
    as_json: Annotated[bool, typer.Option("--json", help="Print the state as JSON.")] = False,
) -> None:
    """Show runs and how far they are. A run whose process is gone is interrupted, and can be resumed."""
    from plait.state.rundir import find_run, list_runs

    if run is not None:
        _show_run(find_run(run, runs), as_json)
        return
    found = [(directory, _read_any(directory)) for directory in list_runs(runs)]
    if as_json:
        print_json({"runs": [_as_dict(directory, snapshot) for directory, snapshot in found]})
    elif found:
        _print_list(found)
    else:
        print(f"There is no run in {runs.absolute()}. Start one with `plait run FILE.toml`.")


def read_snapshot(directory: "RunDirectory", now_s: float) -> "RunSnapshot":
    """A run's state from its event log, and from its lock whether a process has it. Raises StateError for a damaged log."""
    import msgspec

    from plait.observe.log import read_events
    from plait.observe.summary import RunSummary

    is_held = directory.holder() is not None  # Before the events: a run that ends meanwhile is not taken for interrupted.
    summary = RunSummary(read_events(directory.events) if directory.events.exists() else ())
    status = _status(summary.status, is_held)
    at_s = now_s if status == "running" or summary.latest_s is None else summary.latest_s
    return msgspec.structs.replace(summary.snapshot(at_s), run=directory.name, status=status)


def _read_any(directory: "RunDirectory") -> "RunSnapshot":
    """One log that cannot be read does not hide the other runs; `plait status RUN` tells what is wrong with it."""
    import msgspec

    from plait.observe.summary import RunSummary
    from plait.types.errors import StateError

    try:
        return read_snapshot(directory, time.time())
    except StateError as error:
        return msgspec.structs.replace(RunSummary().snapshot(0.0), run=directory.name, status=f"{UNREADABLE}: {error.message}")


def _status(logged: str, is_held: bool) -> str:
    if is_held:
        return "running" if logged == "running" else "starting"
    return "interrupted" if logged in ("pending", "running") else logged


def _show_run(directory: "RunDirectory", as_json: bool) -> None:
    snapshot = read_snapshot(directory, time.time())
    if as_json:
        print_json(_as_dict(directory, snapshot))
        return
    from plait.observe.live_table import render_run

    console = _console()
    console.print(render_run(snapshot, console.width, sys.maxsize))
    if snapshot.status == "interrupted":
        print(f"Its process is gone. Go on with: {resume_command(directory)}")
    if snapshot.status == "failed":
        print(f"Try the tasks that failed again: {resume_command(directory)}")


def _as_dict(directory: "RunDirectory", snapshot: "RunSnapshot") -> dict[str, Any]:
    import msgspec

    state: dict[str, Any] = msgspec.to_builtins(snapshot)
    resume = resume_command(directory) if snapshot.status == "interrupted" else None
    return {"path": str(directory.path), "resume_command": resume, **state}


def resume_command(directory: "RunDirectory") -> str:
    import shlex

    is_default = directory.path.parent == Path("runs").absolute()
    return f"plait resume {shlex.quote(directory.name if is_default else str(directory.path))}"


def _print_list(found: "list[tuple[RunDirectory, RunSnapshot]]") -> None:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("run", "status", "tasks", "steps", "accuracy gain", "started", "time"):
        table.add_column(name, justify="right" if name in ("tasks", "steps", "accuracy gain") else "left")
    for _, snapshot in found:
        table.add_row(*_list_cells(snapshot))
    _console().print(table)
    for directory, snapshot in found:
        if snapshot.status.startswith(UNREADABLE):
            print(f"{directory.name} cannot be read: `plait status {directory.name}` says why.")
        if snapshot.status == "interrupted":
            print(f"{directory.name} was interrupted. Go on with: {resume_command(directory)}")


def _list_cells(run: "RunSnapshot") -> list[Any]:
    from rich.text import Text

    from plait.observe.text import duration, local_time, one_line

    style = {"done": "green", "failed": "red", "interrupted": "yellow", "running": "cyan"}.get(run.status, "")
    started = "-" if run.started_s is None else local_time(run.started_s, "%Y-%m-%d %H:%M")
    if run.status.startswith(UNREADABLE):
        return [Text(one_line(run.run, 40)), Text(UNREADABLE, style="red"), *[Text("-")] * 5]
    cells = [str(len(run.tasks)), _steps(run), _mean_gain(run), started, duration(run.active_s)]
    return [Text(one_line(run.run, 40)), Text(run.status, style=style), *map(Text, cells)]


def _steps(run: "RunSnapshot") -> str:
    totals = [task.total_steps for task in run.tasks]
    known = [total for total in totals if total is not None]
    return f"{run.steps}/{sum(known)}" if known and len(known) == len(totals) else str(run.steps)


def _mean_gain(run: "RunSnapshot") -> str:
    gains = [
        task.accuracy_last - task.accuracy_before
        for task in run.tasks
        if task.accuracy_last is not None and task.accuracy_before is not None and task.step > 0
    ]
    return f"{100 * sum(gains) / len(gains):+.0f} points" if gains else "-"


def _console() -> "Console":
    from rich.console import Console

    return Console(file=sys.stdout, width=None if sys.stdout.isatty() else PLAIN_WIDTH, highlight=False)
