"""A file is sent as it was opened, whatever has its name meanwhile."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from fastapi.responses import FileResponse

from plait.server.principal import Principal
from plait.server.routes import tasks
from plait.server.routes.dependencies import principal_of

BIG = bytes(range(256)) * 1024
"""More than is sent at a time."""


@pytest.mark.parametrize("now", [b"", b"x", BIG * 2])
def test_a_report_that_is_written_anew_is_sent_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, now: bytes) -> None:
    """As it is for each who asks for it. It comes after the headers are made, and before they are sent."""
    app, path, send = FastAPI(), tmp_path / "report.html", FileResponse._handle_simple
    path.write_bytes(BIG)

    async def report(*_: str) -> Path:
        return path

    async def principal() -> Principal:
        return Principal("ann", "k", is_admin=False)

    async def replace_and_send(self: FileResponse, *args: Any) -> None:
        (tmp_path / "new").write_bytes(now)
        (tmp_path / "new").replace(path)
        await send(self, *args)

    monkeypatch.setattr(FileResponse, "_handle_simple", replace_and_send)
    app.state.service = SimpleNamespace(managed=SimpleNamespace(results=SimpleNamespace(report=report)))
    app.dependency_overrides[principal_of] = principal
    app.include_router(tasks.router)

    async def ask() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://t") as client:
            return await client.get("/v1/tasks/r/report")

    found = asyncio.run(ask())
    assert path.read_bytes() == now
    assert found.content == BIG
    assert found.headers["content-length"] == str(len(BIG))
    assert found.headers["content-type"].startswith("text/html")
