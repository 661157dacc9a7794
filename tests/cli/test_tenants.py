"""`plait tenants` against a server that remembers what it was asked."""

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from plait.cli import http
from plait.cli.main import main

QUOTAS = {"live_adapters": 4, "stored_bytes": None, "tokens_per_minute": 100, "concurrent_samples": 8}
ROW = {"tenant_id": "ana b", "weight": 2.0, "quotas": QUOTAS, "has_own_quotas": True, "stored_bytes": 2048}
Asked = list[tuple[str, str, Any]]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    """Method, path and body of each request."""
    found: Asked = []

    def answer(request: httpx.Request) -> httpx.Response:
        found.append((request.method, request.url.raw_path.decode().split("?")[0], json.loads(request.content or b"null")))
        listing = {"tenants": [ROW], "cursor": {"total_count": 1, "limit": 500, "offset": 0}}
        return httpx.Response(200, json=listing if found[-1][1] == "/v1/tenants" else ROW)

    client: Callable[..., httpx.Client] = httpx.Client
    monkeypatch.setattr(http.httpx, "Client", lambda **more: client(**more, transport=httpx.MockTransport(answer)))
    monkeypatch.setenv("PLAIT_API_KEY", "tml-key")
    return found


def plait(*arguments: str) -> object:
    with pytest.raises(SystemExit) as caught:
        main(["tenants", *arguments])
    return caught.value.code


def test_tenants_are_listed_and_shown(asked: Asked, capsys: pytest.CaptureFixture[str]) -> None:
    assert plait("list") == 0
    assert "ana b" in capsys.readouterr().out
    assert plait("list", "--json") == 0
    assert json.loads(capsys.readouterr().out) == [ROW]
    assert plait("show", "ana b") == 0
    shown = capsys.readouterr().out
    assert "stored_bytes: none" in shown
    assert "weight: 2" in shown
    assert asked[-1] == ("GET", "/v1/tenants/ana%20b", None)


@pytest.mark.parametrize(
    ("options", "body"),
    [
        (["--weight", "2"], {"weight": 2.0}),
        (["--quota", "live_adapters=4", "--quota", "stored_bytes=none"], {"quotas": {"live_adapters": 4, "stored_bytes": None}}),
        (["--default-quotas"], {"quotas": None}),
    ],
)
def test_what_is_named_is_set(asked: Asked, options: list[str], body: dict[str, Any]) -> None:
    assert plait("set", "ana b", *options) == 0
    assert asked == [("PATCH", "/v1/tenants/ana%20b", body)]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "nothing to set"),
        (["--quota", "adapters=4"], "names no quota"),
        (["--quota", "live_adapters=many"], "has no number"),
        (["--quota", "live_adapters=4", "--default-quotas"], "contradict"),
    ],
)
def test_what_cannot_be_set_is_refused(asked: Asked, capsys: pytest.CaptureFixture[str], options: list[str], words: str) -> None:
    assert plait("set", "ana", *options) == 2
    assert words in capsys.readouterr().err
    assert asked == []
