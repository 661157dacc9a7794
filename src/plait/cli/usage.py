"""`plait usage`: what was used of a server, by tenant and model."""

import time
from datetime import UTC, datetime
from typing import Annotated

import typer

from plait.cli.http import JsonOption, KeyOption, UrlOption, connect
from plait.cli.output import human_bytes, print_json
from plait.cli.table import print_table
from plait.types.errors import PlaitError

DAY_S = 86_400


def usage(
    tenant: Annotated[str | None, typer.Option(help="Only this tenant's; others' need an admin key.")] = None,
    days: Annotated[int | None, typer.Option(help="Of the last so many days (24 h each).", min=1)] = None,
    since: Annotated[str | None, typer.Option(help="From this time on: 2026-01-31 or 2026-01-31T17:00, UTC.")] = None,
    until: Annotated[str | None, typer.Option(help="Up to this time.")] = None,
    url: UrlOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Counted by the hour. Without --days or --since: since the server's first start."""
    if days is not None and since is not None:
        raise PlaitError("--days and --since contradict each other.", "Give one of them.")
    from_s = time.time() - days * DAY_S if days is not None else _seconds("--since", since)
    with connect(url, key) as server:
        found = server.get("/v1/usage", tenant_id=tenant, from_s=from_s, to_s=_seconds("--until", until))
    if as_json:
        print_json(found)
        return
    columns = ("prompt_tokens", "cached_tokens", "sampled_tokens", "trained_tokens", "device_s", "num_requests")
    rows = [(row["tenant_id"], row["base_model"], *(row[name] for name in columns)) for row in found["usage"]]
    print_table(("tenant", "model", "prompt", "cached", "sampled", "trained", "device s", "requests"), rows, "Nothing was used.")
    for name, size_bytes in found["stored_bytes"].items():
        print(f"{name} stores {human_bytes(size_bytes)}.")


def _seconds(option: str, text: str | None) -> float | None:
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise PlaitError(f"{option} {text!r} is no time.", "Write it as 2026-01-31 or 2026-01-31T17:00 (UTC).") from error
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
