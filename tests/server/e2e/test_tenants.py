"""P70, 8: another tenant's things are as if they were not there, on every route that the application has.

The routes come from the OpenAPI document. Whatever names a thing is tried with the other tenant's: 404, or 403 where an admin's key
is needed. What lists things lists none of his. A new route without an entry here fails the test.
"""

import json
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from plait.server.database import managed
from plait.server.database.database import Database
from plait.server.database.tables import ManagedRun
from tests.server.e2e.wire import Wire
from tests.server.server_process import ALIAS, ServerProcess, Tenant

RUN = "run-of-the-other"
UPLOAD = "other-data"
SECRET = "a secret word of the other tenant"
PROMPT = {"chunks": [{"type": "encoded_text", "tokens": [5, 6, 7]}]}
PARAMS = {"max_tokens": 1}


class Owner:
    """A tenant with one of everything."""

    def __init__(self, server: ServerProcess, tenant: Tenant) -> None:
        self.tenant, self.wire = tenant, Wire(server, tenant.key, outlives_test=True)
        self.model_id, self.sampler_id = self.wire.model(user_metadata={"secret": SECRET}), self.wire.sampler()
        self.session_id = self.wire.session_id
        self.call = self.wire.optim_step(self.model_id, 1)[1]["request_id"]
        paths = []
        for seq_id, route in enumerate(("save_weights", "save_weights_for_sampler", "save_weights_external"), start=2):
            made = self.wire.must(route, model_id=self.model_id, seq_id=seq_id, path="mine")
            paths.append(self.wire.result(made["request_id"])["path"])
        self.weights, self.sampler_weights, self.external_weights = paths
        self.sample = self.wire.sample(self.sampler_id)[1]["request_id"]
        self.wire.result(self.sample)
        with httpx.Client(base_url=server.url, headers={"X-API-Key": tenant.key}, timeout=120) as http:
            data = json.dumps({"prompt": SECRET, "answer": "1"}) + "\n"
            assert http.post("/v1/uploads", params={"name": UPLOAD}, content=data).status_code in (200, 201)
        add_run(server, tenant.tenant_id)

    @property
    def names(self) -> tuple[str, ...]:
        return (self.session_id, RUN, UPLOAD, SECRET, self.tenant.tenant_id)


def add_run(server: ServerProcess, tenant_id: str) -> None:
    database = Database.open(f"sqlite:///{server.folder / 'data' / 'plait.db'}")
    try:
        row = ManagedRun(
            run_id=RUN, tenant_id=tenant_id, state="done", toml=SECRET, folder=str(server.folder), created_s=time.time(),
            ended_s=time.time(),
        )  # fmt: skip
        database.submit(lambda session: managed.add_run(session, row)).result()
    finally:
        database.stop()


@pytest.fixture(scope="module")
def owner(_session_server: ServerProcess) -> Iterator[Owner]:
    owner = Owner(_session_server, _session_server.tenant())
    yield owner
    owner.wire.close()


def path_values(owner: Owner) -> dict[str, str]:
    return {
        "session_id": owner.session_id, "sampler_id": owner.sampler_id, "run_id": owner.model_id, "kind": "weights", "name": "mine",
        "file": "adapter_model.safetensors", "model": owner.sampler_weights, "action": "cancel",
        "key_id": owner.tenant.key.split("-")[1], "tenant_id": owner.tenant.tenant_id,
    }  # fmt: skip


def bodies(owner: Owner, mine: str) -> dict[str, list[dict[str, Any]]]:
    """By route, each naming something of the owner's. `mine` is a session of the stranger's."""
    call = {"model_id": owner.model_id, "seq_id": 9}
    return {
        "session_heartbeat": [{"session_id": owner.session_id}],
        "sessions/{session_id}/finish": [{"reason": {"type": "success"}}],
        "sessions/search": [{}],
        "sessions/{session_id}/project": [{"project_id": "p"}],
        "create_model": [{"session_id": owner.session_id, "model_seq_id": number, "base_model": ALIAS} for number in (0, 7)],
        "get_info": [{"model_id": owner.model_id}],
        "optim_step": [call | {"adam_params": {}}],
        "save_weights": [call | {"path": "x"}],
        "save_weights_for_sampler": [call | {"path": "x"}, call | {"sampling_session_seq_id": 1}],
        "save_weights_external": [call | {"path": "x"}],
        "load_weights": [
            {"session_id": mine, "model_seq_id": 0, "path": owner.weights, "optimizer": True},
            {"session_id": owner.session_id, "model_seq_id": 0, "path": owner.weights, "optimizer": True},
            call | {"path": owner.weights, "optimizer": True},
        ],
        "create_sampling_session": [
            {"session_id": owner.session_id, "sampling_session_seq_id": 5, "base_model": ALIAS},
            {"session_id": mine, "sampling_session_seq_id": 5, "model_path": owner.sampler_weights},
        ],
        "asample": [{"sampling_session_id": owner.sampler_id, "seq_id": 7, "prompt": PROMPT, "sampling_params": PARAMS}],
        "retrieve_future": [{"request_id": owner.call}, {"request_id": owner.sample}],
        "cancel_future": [{"request_id": owner.call}, {"request_id": owner.sample}],
        "join_sampling_session": [{"sampling_session_id": owner.sampler_id}],
        "retrieve_futures": [
            {
                "target": {"type": "sampling_session", "sampling_session_id": owner.sampler_id, "cloned_sampler_id": 0},
                "prev_cursor": 0, "timeout": 0, "retrieved_request_ids": [],
            }
        ],
        "unload_model": [{"model_id": owner.model_id}],
        "weights_info": [{"tinker_path": path} for path in (owner.weights, owner.sampler_weights, owner.external_weights)],
        "copy_weights": [{"source_path": owner.weights, "destination_project_id": "p"}],
        "training_runs/{run_id}/checkpoints/{kind}/{name}/ttl": [{"ttl_seconds": 3600}],
        "/v1/completions": [{"model": owner.sampler_weights, "prompt": "a", "max_tokens": 1}],
        "/v1/chat/completions": [{"model": owner.sampler_weights, "messages": [{"role": "user", "content": "a"}], "max_tokens": 1}],
        "/v1/keys": [{"tenant_id": owner.tenant.tenant_id, "role": "member", "label": ""}],
        "/v1/tenants/{tenant_id}": [{"weight": 1.0}],
    }  # fmt: skip


NAMELESS = {
    "client/config", "client/dynamic_config", "get_server_capabilities", "telemetry", "healthz", "create_session", "auth/apikey/me",
    "create_custom_loss", "/healthz", "/readyz", "/metrics", "/v1/tasks", "/v1/uploads",
}  # fmt: skip
"""Whose POST, PUT or DELETE name nothing that could be another's (a task file names uploads, which tests/server/managed tries)."""
SKIPPED = {("post", "forward_backward"), ("delete", "auth/apikey/me"), ("get", "/metrics")}
"""No JSON, and tried by itself; revokes the stranger's own key; the operator's (tests/server/test_watching.py)."""
QUERIES = {"expires": "4000000000", "signature": "0" * 64, "starting_on": "2020-01-01", "ending_before": "2030-01-01"}


def attempts(server: ServerProcess, owner: Owner, stranger: Wire) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """(method, path of the document, what to send); every route, each with all ways to name something of the owner's."""
    document = httpx.get(f"{server.url}/openapi.json", timeout=120).json()["paths"]
    known = bodies(owner, stranger.session_id)
    for path, operations in document.items():
        route = path.removeprefix("/api/v1/").replace("/oai", "")
        values = path_values(owner)
        if path.startswith("/v1/tasks"):
            values["run_id"] = RUN
        if path.startswith("/v1/uploads"):
            values["name"] = UPLOAD
        if path.startswith("/v1/checkpoint_files"):
            values["name"] = "adapter_model.safetensors"
        for method, operation in operations.items():
            parameters = {p["name"]: p for p in operation.get("parameters", [])}
            query = {
                name: "x" if path == "/v1/uploads" else QUERIES.get(name, owner.weights)
                for name, p in parameters.items()
                if p["in"] == "query" and p.get("required")
            }
            if "tenant_id" in parameters:
                query |= {} if parameters["tenant_id"]["in"] == "path" else {"tenant_id": owner.tenant.tenant_id}
            url = path
            for name in [name for name, p in parameters.items() if p["in"] == "path"]:
                url = url.replace(f"{{{name}}}", values[name])
            if (method, route) in SKIPPED:
                continue
            needs_body = "requestBody" in operation and method != "get"
            if needs_body and route not in known and route not in NAMELESS:
                raise AssertionError(f"{method} {path}: say in bodies() how to name another's things there, or add it to NAMELESS")
            for body in known.get(route, [None]) if needs_body else [None]:
                yield method, path, {"url": url, "params": query, **({"json": body} if body is not None else {})}


def test_every_route_hides_what_is_anothers(server: Any, owner: Owner) -> None:
    stranger = Wire(server, server.tenant().key)
    problems, tried = [], 0
    with httpx.Client(base_url=server.url, headers=stranger.http.headers, timeout=60) as http:
        for method, path, request in attempts(server, owner, stranger):
            tried += 1
            answer = http.request(method, **request)
            asked = json.dumps(request)
            leaked = [name for name in owner.names if name in answer.text and name not in asked]
            names_something = any(name in asked for name in (*owner.names, "key_id")) or "{key_id}" in path
            expected: tuple[int, ...] = (403, 404) if names_something else (200, 201, 204, 403, 404, 409, 422)
            if "/tasks" in path and method == "post" and "{" not in path:
                expected = (422,)  # An empty body is no task file.
            if answer.status_code not in expected or leaked:
                problems.append((method, path, request, answer.status_code, answer.text[:200], leaked))
    assert not problems, "\n".join(map(str, problems))
    assert tried > 60
    assert stranger.forward_backward(owner.model_id, 9)[0] == 404


def test_the_owner_finds_all_as_it_was(server: Any, owner: Owner) -> None:
    """After all that strangers tried."""
    test_every_route_hides_what_is_anothers(server, owner)
    assert owner.wire.loss(owner.model_id, 5) > 0
    assert owner.wire.result(owner.sample)
    for path in (owner.weights, owner.sampler_weights, owner.external_weights):
        assert owner.wire.post("weights_info", tinker_path=path)[0] == 200
    with httpx.Client(base_url=server.url, headers=owner.wire.http.headers, timeout=120) as http:
        assert UPLOAD in http.get("/v1/uploads").text


def test_what_is_published_can_be_read_and_not_changed(server: Any, owner: Owner) -> None:
    stranger = Wire(server, server.tenant().key)
    route = f"/training_runs/{owner.model_id}/checkpoints/weights/mine"
    assert owner.wire.http.post(f"{route}/publish").status_code in (200, 204)
    try:
        assert stranger.post("weights_info", tinker_path=owner.weights)[0] == 200
        made = stranger.must("load_weights", session_id=stranger.session_id, model_seq_id=0, path=owner.weights, optimizer=True)
        assert "error" not in stranger.result(made["request_id"])
        assert stranger.http.delete(route).status_code == 404
        assert stranger.http.put(f"{route}/ttl", json={"ttl_seconds": 3600}).status_code == 404
        assert stranger.http.delete(f"{route}/publish").status_code == 404
    finally:
        assert owner.wire.http.delete(f"{route}/publish").status_code in (200, 204)
    assert stranger.post("weights_info", tinker_path=owner.weights)[0] == 404
