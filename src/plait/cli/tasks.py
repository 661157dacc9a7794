"""`plait tasks`: tasks that a server runs."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from plait.cli.output import print_json
from plait.types.errors import ConfigError

if TYPE_CHECKING:
    from plait.client.server_link import ServerLink

app = typer.Typer(
    add_completion=False, rich_markup_mode=None, no_args_is_help=True, help="Submit tasks to a server, watch and steer them."
)
Url = Annotated[str | None, typer.Option(help="Address of the server; else PLAIT_URL, TINKER_BASE_URL, or this machine's.")]
Key = Annotated[str | None, typer.Option(help="Key; else PLAIT_API_KEY or TINKER_API_KEY.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")]
RunId = Annotated[str, typer.Argument(help="Id of the run, as `plait tasks submit` and `list` tell it.")]
TaskName = Annotated[str | None, typer.Option("--task", help="One task of the run; without it, all.")]


@app.command()
def submit(
    file: Annotated[Path, typer.Argument(help="Task file (TOML): name, seed, tasks.")],
    data: Annotated[list[Path] | None, typer.Option(help="JSONL file to upload first; used as upload:NAME. Repeatable.")] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Go on to tell what happens, until it ends.")] = False,
    url: Url = None,
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Have the server run the tasks of a file."""
    link = _link(url, key)
    text = _read(file)
    for path in data or ():
        link.json("POST", "/v1/uploads", {"name": path.name}, _read(path))
    run = link.json("POST", "/v1/tasks", body=text)
    if not follow:
        _tell(run, as_json, f"{run['run_id']} is {run['state']}. Watch it: plait tasks logs --follow {run['run_id']}")
        return
    _follow(link, str(run["run_id"]), as_json)


@app.command("list")
def list_runs(
    limit: Annotated[int, typer.Option(help="Most runs to list, the newest first.", min=1, max=1000)] = 50,
    url: Url = None,
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """List the runs of your tenant."""
    answer: dict[str, Any] = _link(url, key).json("GET", "/v1/tasks", {"limit": limit})
    if as_json:
        print_json(answer)
        return
    for run in answer["runs"]:
        print(f"{_time(run['created_s'])}  {run['state']:<9}  {run['run_id']}")
    if not answer["runs"]:
        print("There is no run. Submit one: plait tasks submit FILE.toml")


@app.command()
def show(run: RunId, url: Url = None, key: Key = None, as_json: AsJson = False) -> None:
    """Show how far a run's tasks are."""
    _show(_get(_link(url, key), run), as_json)


@app.command()
def logs(
    run: RunId,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the run ends.")] = False,
    url: Url = None,
    key: Key = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print each event as a line of JSON.")] = False,
) -> None:
    """Tell what happened in a run."""
    link = _link(url, key)
    if follow:
        _follow(link, run, as_json)
    else:
        _print_events(link, run, as_json, follow=False)


@app.command()
def pause(run: RunId, task: TaskName = None, url: Url = None, key: Key = None, as_json: AsJson = False) -> None:
    """Start no further step; what runs completes."""
    _act("pause", run, task, url, key, as_json)


@app.command()
def resume(run: RunId, task: TaskName = None, url: Url = None, key: Key = None, as_json: AsJson = False) -> None:
    """Go on with what was paused."""
    _act("resume", run, task, url, key, as_json)


@app.command()
def cancel(run: RunId, task: TaskName = None, url: Url = None, key: Key = None, as_json: AsJson = False) -> None:
    """End tasks now; every finished step is kept."""
    _act("cancel", run, task, url, key, as_json)


@app.command()
def report(
    run: RunId, to: Annotated[Path, typer.Option(help="File to write.")] = Path("report.html"), url: Url = None, key: Key = None
) -> None:
    """Fetch a run's report (HTML)."""
    to.write_bytes(_link(url, key).request("GET", _path(run, "report")))
    print(to)


@app.command()
def adapter(
    run: RunId,
    task: TaskName = None,
    step: Annotated[int | None, typer.Option(help="Version; else the best by held-out score, else the latest.", min=0)] = None,
    to: Annotated[Path, typer.Option(help="File to write: .tar or .zip.")] = Path("adapter.tar"),
    url: Url = None,
    key: Key = None,
) -> None:
    """Fetch a trained adapter (PEFT)."""
    kind = to.suffix.removeprefix(".")
    if kind not in ("tar", "zip"):
        raise ConfigError(f"--to is {to}.", "Name a file that ends in .tar or .zip.")
    to.write_bytes(_link(url, key).request("GET", _path(run, "adapter"), {"task": task, "step": step, "format": kind}))
    print(to)


def _link(url: str | None, key: str | None) -> "ServerLink":
    from plait.client.server_link import ServerLink

    return ServerLink(url, key)


def _path(run: str, *more: str) -> str:
    from plait.client.server_link import path_of

    return path_of("tasks", run, *more)


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}.", "Name a file that is there.") from error


def _get(link: "ServerLink", run: str) -> dict[str, Any]:
    return link.json("GET", _path(run))


def _act(action: str, run: str, task: str | None, url: str | None, key: str | None, as_json: bool) -> None:
    answer = _link(url, key).json("POST", _path(run, action), {"task": task})
    _tell(answer, as_json, f"{run} is {answer['state']}.")


def _follow(link: "ServerLink", run: str, as_json: bool) -> None:
    _print_events(link, run, as_json, follow=True)
    state = _get(link, run)["state"]
    if not as_json:
        print(f"{run} is {state}.")
    if state != "done":
        raise typer.Exit(1)


def _print_events(link: "ServerLink", run: str, as_json: bool, follow: bool) -> None:
    from plait.observe.events import decode_event
    from plait.observe.plain import plain_line
    from plait.observe.summary import RunSummary

    summary = RunSummary()
    for told in link.events(_path(run, "events"), follow):
        if told.kind == "end":
            return
        event = decode_event(told.data.encode())
        summary.apply(event)
        line = told.data if as_json else plain_line(event, summary)
        if line is not None:
            print(line, flush=True)


def _tell(answer: dict[str, Any], as_json: bool, text: str) -> None:
    if as_json:
        print_json(answer)
    else:
        print(text)


def _show(run: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(run)
        return
    print(f"{run['run_id']} is {run['state']}, submitted {_time(run['created_s'])}.")
    for task in run["tasks"]:
        print(f"  {task['name']:<20} {task['state']:<10} step {task['step']}/{task['total_steps'] or '?'}{_scores(task)}")
        if task["cause"]:
            print(f"    {task['cause']}")


def _scores(task: dict[str, Any]) -> str:
    reward = "" if task["reward_last"] is None else f"  reward {task['reward_last']:.3f}"
    before, last = task["accuracy_before"], task["accuracy_last"]
    return reward + ("" if last is None or before is None else f"  accuracy {100 * before:.0f}% -> {100 * last:.0f}%")


def _time(time_s: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(time_s))
