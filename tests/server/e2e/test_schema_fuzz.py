"""schemathesis against our own OpenAPI page: nothing that it thinks of is answered 5xx, or not at all.

Each request is sent as it was made up, and again with the ids of things that are there, so that it gets past the first check.
"""

from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.core.result import Ok

from tests.server.e2e.wire import Wire
from tests.server.server_process import ALIAS, ServerProcess

NUM_EXAMPLES = 4
ANSWER_S = 120.0
SKIPPED = {("DELETE", "/api/v1/auth/apikey/me")}
"""Revokes the key of the test."""


@schemathesis.serializer("application/x-protobuf", "application/toml", "application/jsonl")
def as_bytes(context: Any, value: Any) -> bytes:
    """Bodies that are no JSON, which the schema says nothing of."""
    return value if isinstance(value, bytes) else str(value).encode(errors="replace")


pytestmark = pytest.mark.filterwarnings("ignore")


def known_ids(wire: Wire) -> dict[str, Any]:
    model_id, sampler_id = wire.model(), wire.sampler()
    saved = wire.must("save_weights", model_id=model_id, seq_id=1, path="a")
    path = wire.result(saved["request_id"])["path"]
    return {
        "session_id": wire.session_id, "model_id": model_id, "run_id": model_id, "sampling_session_id": sampler_id,
        "sampler_id": sampler_id, "base_model": ALIAS, "model": ALIAS, "path": path, "tinker_path": path, "source_path": path,
        "kind": "weights", "name": "a", "request_id": saved["request_id"],
    }  # fmt: skip


def with_known_ids(value: Any, known: dict[str, Any]) -> Any:
    if not isinstance(value, dict):
        return value
    return {key: known.get(key, with_known_ids(inner, known)) for key, inner in value.items()}


def test_nothing_is_answered_5xx(own_server: Any) -> None:
    with own_server(OPERATIONS__POLL_S=0.05, MODEL__MAX_CONTEXT_TOKENS=64) as server:
        wire = Wire(server)
        known, problems, tried = known_ids(wire), [], 0
        schema = schemathesis.openapi.from_url(f"{server.url}/openapi.json")
        for operation in sorted(
            (found.ok() for found in schema.get_all_operations() if isinstance(found, Ok)), key=_ends_something
        ):
            if (operation.method.upper(), operation.path) in SKIPPED:
                continue
            tried += 1
            problems += _fuzz(server, operation, known)
        assert not problems, "\n".join(problems)
        assert tried > 60
        fresh = Wire(server)
        assert fresh.loss(fresh.model(), 1) > 0


def _ends_something(operation: Any) -> bool:
    """What the others need is put away last."""
    return operation.method.upper() == "DELETE" or operation.path.endswith(("/finish", "/unload_model"))


def _fuzz(server: ServerProcess, operation: Any, known: dict[str, Any]) -> list[str]:
    problems: list[str] = []

    @settings(
        max_examples=NUM_EXAMPLES, derandomize=True, database=None, deadline=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(case=operation.as_strategy())
    def run(case: Any) -> None:
        _send(server, case, problems)
        case.path_parameters = with_known_ids(case.path_parameters, known)
        case.body = with_known_ids(case.body, known)
        _send(server, case, problems)

    run()
    return problems


def _send(server: ServerProcess, case: Any, problems: list[str]) -> None:
    answer = case.call(headers={"X-API-Key": server.admin.key}, timeout=ANSWER_S)
    if answer.status_code >= 500:
        problems.append(
            f"{case.method} {case.formatted_path}: {answer.status_code} {answer.text[:200]}; body {str(case.body)[:300]}"
        )
