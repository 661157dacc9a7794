"""`plait tasks`: tasks that a server runs."""

from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import typer

from plait.cli.http import JsonOption, KeyOption, ServerClient, UrlOption, connect
from plait.cli.output import check_target, print_json, write_file
from plait.cli.table import print_table, when
from plait.types.errors import ConfigError

app = typer.Typer(
    add_completion=False, rich_markup_mode=None, no_args_is_help=True, help="Submit tasks to a server, watch and steer them."
)
RunId = Annotated[str, typer.Argument(help="Id of the run, as `plait tasks submit` and `list` tell it.")]
TaskName = Annotated[str | None, typer.Option("--task", help="One task of the run; without it, all.")]


@app.command()
def submit(
    file: Annotated[Path, typer.Argument(help="Task file (TOML): name, seed, tasks.")],
    data: Annotated[list[Path] | None, typer.Option(help="JSONL file to upload first; used as upload:NAME. Repeatable.")] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Go on to tell what happens, until it ends.")] = False,
    url: UrlOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Have the server run the tasks of a file."""
    text, uploads = _read(file), {path.name: _read(path) for path in data or ()}
    with connect(url, key) as server:
        for name, content in uploads.items():
            server.request("POST", "/v1/uploads", params={"name": name}, content=content)
        run = server.request("POST", "/v1/tasks", content=text)
        if follow:
            _follow(server, str(run["run_id"]), as_json)
        else:
            _tell(run, as_json, f"{run['run_id']} is {run['state']}. Watch it: plait tasks logs --follow {run['run_id']}")


@app.command("list")
def list_runs(
    limit: Annotated[int, typer.Option(help="Most runs to list, the newest first.", min=1, max=1000)] = 50,
    url: UrlOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the runs of your tenant."""
    with connect(url, key) as server:
        answer = server.get("/v1/tasks", limit=limit)
    if as_json:
        print_json(answer)
        return
    rows = [(run["run_id"], run["state"], when(run["created_s"]), when(run["ended_s"])) for run in answer["runs"]]
    print_table(("run", "state", "submitted", "ended"), rows, "There is no run. Submit one: plait tasks submit FILE.toml")


@app.command()
def show(run: RunId, url: UrlOption = None, key: KeyOption = None, as_json: JsonOption = False) -> None:
    """Show how far a run's tasks are."""
    with connect(url, key) as server:
        _show(server.get(_path(run)), as_json)


@app.command()
def logs(
    run: RunId,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the run ends.")] = False,
    url: UrlOption = None,
    key: KeyOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print each event as a line of JSON.")] = False,
) -> None:
    """Tell what happened in a run."""
    with connect(url, key) as server:
        if follow:
            _follow(server, run, as_json)
        else:
            _print_events(server, run, as_json, follow=False)


@app.command()
def pause(run: RunId, task: TaskName = None, url: UrlOption = None, key: KeyOption = None, as_json: JsonOption = False) -> None:
    """Start no further step; what runs completes."""
    _act("pause", run, task, url, key, as_json)


@app.command()
def resume(run: RunId, task: TaskName = None, url: UrlOption = None, key: KeyOption = None, as_json: JsonOption = False) -> None:
    """Go on with what was paused."""
    _act("resume", run, task, url, key, as_json)


@app.command()
def cancel(run: RunId, task: TaskName = None, url: UrlOption = None, key: KeyOption = None, as_json: JsonOption = False) -> None:
    """End tasks now; every finished step is kept."""
    _act("cancel", run, task, url, key, as_json)


@app.command()
def report(
    run: RunId,
    to: Annotated[Path, typer.Option(help="File to write.")] = Path("report.html"),
    url: UrlOption = None,
    key: KeyOption = None,
) -> None:
    """Fetch a run's report (HTML)."""
    _fetch(url, key, _path(run, "report"), to)


@app.command()
def adapter(
    run: RunId,
    task: TaskName = None,
    step: Annotated[int | None, typer.Option(help="Version; else the best by held-out score, else the latest.", min=0)] = None,
    to: Annotated[Path, typer.Option(help="File to write: .tar or .zip.")] = Path("adapter.tar"),
    url: UrlOption = None,
    key: KeyOption = None,
) -> None:
    """Fetch a trained adapter (PEFT)."""
    kind = to.suffix.removeprefix(".")
    if kind not in ("tar", "zip"):
        raise ConfigError(f"--to is {to}.", "Name a file that ends in .tar or .zip.")
    _fetch(url, key, _path(run, "adapter"), to, task=task, step=step, format=kind)


def _path(run: str, *more: str) -> str:
    return "/v1/" + "/".join(quote(part, safe="") for part in ("tasks", run, *more))


def _fetch(url: str | None, key: str | None, path: str, to: Path, **params: Any) -> None:
    """What is there already is kept until the answer has come whole."""
    check_target(to, "--to")
    with connect(url, key) as server, server.stream("GET", path, params=_given(params)) as response:
        content = response.read()
    write_file(to, content, "--to")
    print(to)


def _given(params: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in params.items() if value is not None}


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}.", "Name a file that is there.") from error


def _act(action: str, run: str, task: str | None, url: str | None, key: str | None, as_json: bool) -> None:
    with connect(url, key) as server:
        answer = server.request("POST", _path(run, action), params=_given({"task": task}))
    _tell(answer, as_json, f"{run} is {answer['state']}.")


def _follow(server: ServerClient, run: str, as_json: bool) -> None:
    _print_events(server, run, as_json, follow=True)
    state = server.get(_path(run))["state"]
    if not as_json:
        print(f"{run} is {state}.")
    if state != "done":
        raise typer.Exit(1)


def _print_events(server: ServerClient, run: str, as_json: bool, follow: bool) -> None:
    from plait.client.server_link import ServerLink
    from plait.observe.events import decode_event
    from plait.observe.plain import plain_line
    from plait.observe.summary import RunSummary

    summary = RunSummary()
    for told in ServerLink(server.url, server.key).events(_path(run, "events"), follow):
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
    print(f"{run['run_id']} is {run['state']}, submitted {when(run['created_s'])}.\n")
    print_table(
        ("task", "state", "step", "reward", "accuracy", "errors"), [_row(task) for task in run["tasks"]], "It has no tasks."
    )
    for task in run["tasks"]:
        if task["cause"]:
            print(f"\n{task['name']} is {task['state']}: {task['cause']}")


def _row(task: dict[str, Any]) -> tuple[str, ...]:
    reward, before, last = task["reward_last"], task["accuracy_before"], task["accuracy_last"]
    accuracy = "" if last is None or before is None else f"{100 * before:.0f}% -> {100 * last:.0f}%"
    steps = f"{task['step']}/{task['total_steps'] or '?'}"
    return task["name"], task["state"], steps, "" if reward is None else f"{reward:.3f}", accuracy, str(task["num_errors"])
