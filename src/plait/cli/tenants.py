"""`plait tenants`: the tenants of a server, their shares and quotas. Needs an admin key."""

from typing import Annotated, Any
from urllib.parse import quote

import typer

from plait.cli.http import JsonOption, KeyOption, UrlOption, connect
from plait.cli.output import human_bytes, print_json
from plait.cli.table import print_table
from plait.types.errors import PlaitError

app = typer.Typer(
    help="Show a server's tenants; set shares and quotas.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)
QUOTAS = ("live_adapters", "stored_bytes", "tokens_per_minute", "concurrent_samples")
NO_LIMIT = "none"
TenantArgument = Annotated[str, typer.Argument(metavar="TENANT", help="As `plait tenants list` shows it.")]


@app.command("list")
def list_tenants(url: UrlOption = None, key: KeyOption = None, as_json: JsonOption = False) -> None:
    """List all tenants."""
    with connect(url, key) as server:
        rows = server.pages("/v1/tenants", "tenants")
    if as_json:
        print_json(rows)
        return
    cells = [
        (row["tenant_id"], f"{row['weight']:g}", human_bytes(row["stored_bytes"]), *(_limit(row, name) for name in QUOTAS))
        for row in rows
    ]
    print_table(("tenant", "weight", "stored", *QUOTAS), cells, "No tenants. `plait keys create` makes one.")


@app.command("show")
def show(tenant: TenantArgument, url: UrlOption = None, key: KeyOption = None, as_json: JsonOption = False) -> None:
    """Show one tenant: share, what it stores, and its quotas."""
    with connect(url, key) as server:
        _print(server.get(_path(tenant)), as_json)


@app.command("set")
def set_tenant(
    tenant: TenantArgument,
    weight: Annotated[float | None, typer.Option(help="Share of engine and trainer, against other tenants' (1).")] = None,
    quota: Annotated[
        list[str] | None, typer.Option(metavar="NAME=NUMBER", help=f"One of {', '.join(QUOTAS)}; {NO_LIMIT} lifts it. Repeatable.")
    ] = None,
    default_quotas: Annotated[bool, typer.Option("--default-quotas", help="Go back to the server's quotas.")] = False,
    url: UrlOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Set weight and quotas; what is not named stays."""
    body: dict[str, Any] = {} if weight is None else {"weight": weight}
    if quota and default_quotas:
        raise PlaitError("--quota and --default-quotas contradict each other.", "Give one of them.")
    if quota:
        body["quotas"] = dict(_quota(text) for text in quota)
    elif default_quotas:
        body["quotas"] = None
    if not body:
        raise PlaitError("there is nothing to set.", "Give --weight, --quota NAME=NUMBER or --default-quotas.")
    with connect(url, key) as server:
        _print(server.request("PATCH", _path(tenant), json=body), as_json)


def _path(tenant: str) -> str:
    return f"/v1/tenants/{quote(tenant, safe='')}"


def _quota(text: str) -> tuple[str, int | None]:
    name, _, value = text.partition("=")
    if name not in QUOTAS:
        raise PlaitError(f"--quota {text!r} names no quota.", f"Write NAME=NUMBER with one of {', '.join(QUOTAS)}.")
    if not value.isdecimal() and value != NO_LIMIT:
        raise PlaitError(f"--quota {text!r} has no number.", f"Write {name}=NUMBER, or {name}={NO_LIMIT}.")
    return name, None if value == NO_LIMIT else int(value)


def _limit(row: dict[str, Any], name: str) -> str:
    return NO_LIMIT if row["quotas"][name] is None else str(row["quotas"][name])


def _print(row: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(row)
        return
    print(f"tenant: {row['tenant_id']}\nweight: {row['weight']:g}\nstored: {human_bytes(row['stored_bytes'])}")
    print(f"quotas: {'its own' if row['has_own_quotas'] else 'those of the server'}")
    for name in QUOTAS:
        print(f"  {name}: {_limit(row, name)}")
