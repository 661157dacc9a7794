"""`plait keys`: on the database of `plait serve` itself, whether or not it runs; over HTTP with --url.

A running server takes up at once what is created here, and within 30 s what is revoked; over HTTP both at once.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from plait.cli.http import JsonOption, KeyOption, connect
from plait.cli.output import print_json
from plait.cli.table import print_table, when

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

app = typer.Typer(
    help="Make, list and revoke the keys of a server.", no_args_is_help=True, add_completion=False, rich_markup_mode=None
)

T = TypeVar("T")
SettingsOption = Annotated[
    Path | None,
    typer.Option("--settings", help="Settings file of `plait serve`; variables PLAIT_SERVER__... hold too.", show_default=False),
]
KeysUrlOption = Annotated[
    str | None,
    typer.Option("--url", help="Ask the server at this address, with an admin key, not its database.", show_default=False),
]


@app.command("create")
def create(
    tenant: Annotated[str | None, typer.Option(help="Whose key it is; made if new. Else your own, which is `local` here.")] = None,
    role: Annotated[str, typer.Option(help="member; or admin, who may manage keys and tenants.")] = "member",
    label: Annotated[str, typer.Option(help="What the key is for, for people.")] = "",
    strict: Annotated[bool, typer.Option("--strict", help="Refuse training data of an older policy version.")] = False,
    settings: SettingsOption = None,
    url: KeysUrlOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make a key. It is shown this once."""
    body = {"tenant_id": tenant, "role": role, "label": label, "strict": strict}
    if url is not None:
        with connect(url, key) as server:
            made = server.request("POST", "/v1/keys", json=body)
    else:
        made = _on_database(settings, lambda session: _create(session, body))
    if as_json:
        print_json(made)
    else:
        print(made["key"])
        typer.echo(f"Key {made['key_id']} of tenant {made['tenant_id']}, role {made['role']}. It is shown this once.", err=True)


@app.command("list")
def list_keys(
    tenant: Annotated[str | None, typer.Option(help="Only this tenant's.")] = None,
    settings: SettingsOption = None,
    url: KeysUrlOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """List keys by their public ids, oldest first."""
    if url is not None:
        with connect(url, key) as server:
            rows = server.pages("/v1/keys", "keys", tenant_id=tenant)
    else:
        rows = _on_database(settings, lambda session: _list(session, tenant))
    if as_json:
        print_json(rows)
        return
    cells = [
        (row["key_id"], row["tenant_id"], row["role"], when(row["created_s"]), when(row["revoked_s"]), row["label"]) for row in rows
    ]
    print_table(("key", "tenant", "role", "created", "revoked", "label"), cells, "No keys. `plait keys create` makes one.")


@app.command("revoke")
def revoke(
    key_id: Annotated[str, typer.Argument(help="Public id, as `plait keys list` shows it, or the whole key.")],
    settings: SettingsOption = None,
    url: KeysUrlOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make a key open nothing from now on."""
    public_id = key_id.split("-")[1] if key_id.startswith("tml-") and key_id.count("-") >= 2 else key_id
    if url is not None:
        with connect(url, key) as server:
            row = server.request("DELETE", f"/v1/keys/{_quoted(public_id)}")
    else:
        row = _on_database(settings, lambda session: _revoke(session, public_id))
    if as_json:
        print_json(row)
    else:
        print(f"Key {row['key_id']} of tenant {row['tenant_id']} is revoked.")


def _quoted(text: str) -> str:
    from urllib.parse import quote

    return quote(text, safe="")


def _on_database(file: Path | None, work: "Callable[[Session], T]") -> T:
    from plait.config.load_server import load_server_settings
    from plait.server.database.database import Database

    settings = load_server_settings(file, os.environ)
    settings.data_folder.mkdir(parents=True, exist_ok=True)
    database = Database.open(settings.sqlalchemy_url)
    try:
        return database.submit(work).result()
    finally:
        database.stop()


def _create(session: "Session", body: dict[str, Any]) -> dict[str, Any]:
    from pydantic import ValidationError

    from plait.server.administration import new_key
    from plait.server.serve import LOCAL
    from plait.server.wire.models.administration import CreateKeyRequest
    from plait.types.errors import PlaitError

    try:
        request = CreateKeyRequest.model_validate(body)
    except ValidationError as error:
        problem = error.errors()[0]
        name = str(problem["loc"][0]).removesuffix("_id")
        raise PlaitError(f"--{name} {problem['input']!r}: {problem['msg']}.", "`plait keys create --help` explains it.") from error
    row, key = new_key(session, request, LOCAL)
    return {**_as_dict(row), "key": key}


def _list(session: "Session", tenant_id: str | None) -> list[dict[str, Any]]:
    from plait.server.database import tenants

    return [_as_dict(row) for row in tenants.list_keys(session, tenant_id, 1_000_000, 0)[0]]


def _revoke(session: "Session", key_id: str) -> dict[str, Any]:
    from plait.server import administration
    from plait.server.serve import LOCAL

    return _as_dict(administration.revoke(session, key_id, LOCAL))


def _as_dict(row: Any) -> dict[str, Any]:
    names = ("key_id", "tenant_id", "role", "label", "strict", "created_s", "revoked_s")
    return {name: getattr(row, name) for name in names}
