"""`plait checkpoints`: what a server has stored for you."""

from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import typer

from plait.cli.http import JsonOption, KeyOption, ServerClient, ServerError, UrlOption, connect
from plait.cli.output import human_bytes, print_json
from plait.cli.table import print_table
from plait.types.errors import PlaitError

app = typer.Typer(
    help="List, show, delete and export what a server has stored.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)
OPTIMIZER_FILE = "optimizer.safetensors"
PathArgument = Annotated[str, typer.Argument(metavar="PATH", help="tinker:// address, as `plait checkpoints list` shows it.")]


@app.command("list")
def list_checkpoints(
    model: Annotated[str | None, typer.Option(help="Only those of this model (training run).")] = None,
    url: UrlOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """List your checkpoints, newest first."""
    with connect(url, key) as server:
        if model is None:
            rows = server.pages("/api/v1/checkpoints", "checkpoints")
        else:
            rows = server.get(f"/api/v1/training_runs/{quote(model, safe='')}/checkpoints")["checkpoints"]
    if as_json:
        print_json(rows)
        return
    cells = [
        (row["tinker_path"], row["checkpoint_type"], human_bytes(row["size_bytes"] or 0), _minute(row["time"]), _life(row))
        for row in rows
    ]
    print_table(("path", "kind", "size", "made", "life"), cells, "No checkpoints.")


@app.command("show")
def show(path: PathArgument, url: UrlOption = None, key: KeyOption = None, as_json: JsonOption = False) -> None:
    """Show one checkpoint and its files."""
    with connect(url, key) as server:
        found = _details(server, path)
    if as_json:
        print_json(found)
        return
    for name, value in found.items():
        if name == "files":
            print("files:")
            for file in value:
                print(f"  {file['name']}  {human_bytes(file['size_bytes'])}")
        elif value not in (None, {}):
            print(f"{name}: {value}")


@app.command("delete")
def delete(
    paths: Annotated[list[str], typer.Argument(metavar="PATH...", help="tinker:// addresses.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    url: UrlOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Delete checkpoints; their files are gone for good."""
    routes = [_route(path) for path in paths]
    if not yes and not typer.confirm(f"Delete {len(paths)} checkpoint{'s' if len(paths) > 1 else ''} for good?", err=True):
        raise typer.Exit(1)
    with connect(url, key) as server:
        for path, route in zip(paths, routes, strict=True):
            server.request("DELETE", route)
            if not as_json:
                print(f"Deleted {path}.")
    if as_json:
        print_json({"deleted": paths})


@app.command("export")
def export(
    path: PathArgument,
    to: Annotated[Path, typer.Option("--to", help="Folder to write; must be new or empty.")],
    with_optimizer: Annotated[bool, typer.Option("--with-optimizer", help="The optimizer's state too, if it has one.")] = False,
    url: UrlOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Fetch a checkpoint's adapter in PEFT format."""
    if to.exists() and (not to.is_dir() or any(to.iterdir())):
        raise PlaitError(f"{to} exists and is not an empty folder.", "Choose another --to.")
    with connect(url, key) as server:
        listing = server.get("/v1/checkpoint_files", path=path)
        names = [file["name"] for file in listing["files"] if with_optimizer or file["name"] != OPTIMIZER_FILE]
        for name in names:
            target = _target(to, name)
            target.parent.mkdir(parents=True, exist_ok=True)
            server.download(f"/v1/checkpoint_files/{quote(name)}", target, path=path)
    if as_json:
        print_json({"tinker_path": path, "path": str(to), "files": names})
    else:
        print(to)


def _target(folder: Path, name: str) -> Path:
    """Where a file goes that the server calls `name`; never outside the folder."""
    target = (folder / name).resolve()
    if not target.is_relative_to(folder.resolve()):
        raise PlaitError(f"the server calls a file {name!r}, which lies outside {folder}.", "Do not trust this server.")
    return target


def _details(server: ServerClient, path: str) -> dict[str, Any]:
    listing = server.get("/v1/checkpoint_files", path=path)
    info = server.request("POST", "/api/v1/weights_info", json={"tinker_path": path})
    own = [row for row in _of_model(server, path) if row["tinker_path"] == path]
    return {**(own[0] if own else {}), **info, **listing}


def _of_model(server: ServerClient, path: str) -> list[dict[str, Any]]:
    """None for another tenant's public checkpoint: its model is not yours to see."""
    try:
        answer = server.get(f"/api/v1/training_runs/{quote(_parts(path)[0], safe='')}/checkpoints")
    except ServerError as error:
        if error.status != 404:
            raise
        return []
    rows: list[dict[str, Any]] = answer["checkpoints"]
    return rows


def _parts(path: str) -> tuple[str, str, str]:
    parts = path.removeprefix("tinker://").split("/")
    if not path.startswith("tinker://") or len(parts) != 3 or not all(parts):
        raise PlaitError(f"{path!r} is no checkpoint's address.", "It is like tinker://MODEL/weights/NAME.")
    return parts[0], parts[1], parts[2]


def _route(path: str) -> str:
    model, kind, name = (quote(part, safe="") for part in _parts(path))
    return f"/api/v1/training_runs/{model}/checkpoints/{kind}/{name}"


def _minute(time: str) -> str:
    return time[:16].replace("T", " ")


def _life(row: dict[str, Any]) -> str:
    parts = (["public"] if row["public"] else []) + ([f"until {_minute(row['expires_at'])}"] if row.get("expires_at") else [])
    return ", ".join(parts)
