"""Around a route: request ids, counts by route, log lines, and an answer when the route breaks."""

import logging
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi import APIRouter, FastAPI
from fastapi.testclient import TestClient

from plait.server.gate import Gate, GateMiddleware
from plait.server.http_observer import HttpObserver
from plait.server.logs import note
from plait.server.metrics import Metrics
from plait.server.tracing import Tracing


@pytest.fixture
def gate() -> Gate:
    return Gate()


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def client(gate: Gate, metrics: Metrics) -> Iterator[TestClient]:
    app = FastAPI()

    @app.get("/things/{thing_id}")
    async def thing(thing_id: str) -> dict[str, str]:
        note(tenant="acme")
        if thing_id == "broken":
            raise RuntimeError("on purpose")
        return {"id": thing_id}

    inner, outer = APIRouter(), APIRouter(prefix="/outer")

    @inner.get("/{first}/to/{rest:path}")
    async def nested(first: str, rest: str) -> None:
        pass

    outer.include_router(inner, prefix="/inner")
    app.include_router(outer)

    @app.get("/healthz")
    async def healthz() -> None:
        pass

    app.add_middleware(GateMiddleware, gate=gate)
    app.add_middleware(HttpObserver, metrics=metrics, tracing=Tracing())
    with TestClient(app) as made:
        yield made


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, labels)


def fields_of(caplog: pytest.LogCaptureFixture) -> dict[str, Any]:
    return caplog.records[-1].__dict__["fields"]


def test_every_answer_has_an_id(client: TestClient) -> None:
    ids = {client.get("/things/a").headers["x-request-id"] for _ in range(3)}
    assert len(ids) == 3
    assert client.get("/nothing").headers["x-request-id"]


def test_a_clients_own_id_is_kept_if_it_is_a_plain_word(client: TestClient) -> None:
    assert client.get("/things/a", headers={"X-Request-ID": "mine-1"}).headers["x-request-id"] == "mine-1"
    assert client.get("/things/a", headers={"X-Request-ID": "a b\t{}"}).headers["x-request-id"] != "a b\t{}"
    assert len(client.get("/things/a", headers={"X-Request-ID": "x" * 1000}).headers["x-request-id"]) == 32


def test_requests_are_counted_by_route_and_status(client: TestClient, metrics: Metrics) -> None:
    for path in ("/things/a", "/things/b", "/nothing/1", "/nothing/2"):
        client.get(path)
    assert value(metrics, "plait_http_requests_total", method="GET", route="/things/{thing_id}", status="200") == 2
    assert value(metrics, "plait_http_requests_total", method="GET", route="(none)", status="404") == 2
    assert value(metrics, "plait_http_request_seconds_count", route="/things/{thing_id}") == 2
    client.get("/outer/inner/a%2F/to/b/c%20{d}")
    nested = "/outer/inner/{first}/to/{rest:path}"
    client.get("/outer/inner/a/to/b/c%20{d}")
    assert value(metrics, "plait_http_requests_total", method="GET", route=nested, status="200") == 1
    client.request("BREW", "/things/a")
    assert value(metrics, "plait_http_requests_total", method="(others)", route="/things/{thing_id}", status="405") == 1


def test_a_request_is_logged_with_what_is_known_of_it(client: TestClient, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    request_id = client.get("/things/a?secret=1").headers["x-request-id"]
    fields = fields_of(caplog)
    assert fields["duration_ms"] > 0
    assert {**fields, "duration_ms": 0} == {
        "method": "GET", "route": "/things/{thing_id}", "status": 200, "duration_ms": 0, "thing_id": "a", "tenant": "acme",
        "request_id": request_id,
    }  # fmt: skip
    assert not [record for record in caplog.records if record.name == "plait.http" and "secret" in record.getMessage()]


def test_health_checks_do_not_fill_the_log(client: TestClient, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    client.get("/healthz")
    assert not [record for record in caplog.records if record.name == "plait.http"]


def test_a_broken_route_is_answered_and_told(client: TestClient, metrics: Metrics, caplog: pytest.LogCaptureFixture) -> None:
    answer = client.get("/things/broken")
    assert answer.status_code == 500
    assert answer.headers["x-request-id"] in answer.json()["detail"]
    assert "on purpose" not in answer.text
    assert "RuntimeError: on purpose" in caplog.text
    assert value(metrics, "plait_http_requests_total", method="GET", route="/things/{thing_id}", status="500") == 1


def test_a_closed_gate_turns_away_what_is_new(client: TestClient, gate: Gate) -> None:
    assert client.get("/things/a").status_code == 200
    gate.close()
    answer = client.get("/things/a")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
    assert answer.headers["x-request-id"]
    assert client.get("/healthz").status_code == 200
    assert gate.passes("/api/v1/retrieve_future")
    assert gate.passes("/api/v1/sessions/abc/finish")
    assert not gate.passes("/api/v1/asample")
