"""Samplers with many clients: bulk polling and numbers for clients, with the SDK's own poller."""

import time
from typing import Any

import pytest
import tinker
from tinker import types

from tests.server.routes.owner import Owner, make_owner
from tests.server.server_process import ServerProcess

PROMPT = types.ModelInput.from_ints([40, 41, 42])
PARAMS = types.SamplingParams(max_tokens=4)


@pytest.fixture(scope="module")
def owner(_session_server: ServerProcess) -> Owner:
    return make_owner(_session_server)


def bulk_client(server: ServerProcess, key: str) -> tinker.ServiceClient:
    """As if client/config said so."""
    service = server.client_for(key)
    flags = {"sample_use_retrieve_futures": True, "sample_join_sampling_session": True}
    service.holder._client_config = service.holder.get_client_config().model_copy(update=flags)
    return service


def sampler_of(server: ServerProcess, key: str) -> str:
    with server.http(key) as http:
        session_id = http.post("/create_session", json={"sdk_version": "0.38.0"}).json()["session_id"]
        body = {"session_id": session_id, "sampling_session_seq_id": 0, "base_model": server.models[0]}
        return str(http.post("/create_sampling_session", json=body).json()["sampling_session_id"])


def sample_body(sampler_id: str, seq_id: int) -> dict[str, Any]:
    prompt = {"chunks": [{"type": "encoded_text", "tokens": [40, 41]}]}
    return {"sampling_session_id": sampler_id, "seq_id": seq_id, "prompt": prompt, "sampling_params": {"max_tokens": 2}}


def test_samples_awaited_together(server: ServerProcess, owner: Owner) -> None:
    sampling = bulk_client(server, owner.key).create_sampling_client(base_model=server.models[0]).result()
    for _ in range(2):
        futures = [sampling.sample(PROMPT, num_samples=1, sampling_params=PARAMS) for _ in range(20)]
        assert {len(future.result(timeout=120).sequences) for future in futures} == {1}
    assert sampling._cloned_sampler_id == 0
    assert sampling._futures_poller is not None


def test_clients_of_a_sampler_get_numbers_of_their_own(server: ServerProcess, owner: Owner) -> None:
    sampler_id = sampler_of(server, owner.key)
    with server.http(owner.key) as http, server.http(server.tenant().key) as other:
        numbers = [http.post("/join_sampling_session", json={"sampling_session_id": sampler_id}).json() for _ in range(3)]
        assert [number["client_counter"] for number in numbers] == [0, 1, 2]
        assert other.post("/join_sampling_session", json={"sampling_session_id": sampler_id}).status_code == 404
        target = {"target": {"sampling_session_id": sampler_id}}
        assert other.post("/retrieve_futures", json=target).status_code == 404


def test_clients_hear_of_their_own_requests_from_their_cursor_on(server: ServerProcess, owner: Owner) -> None:
    sampler_id = sampler_of(server, owner.key)
    with server.http(owner.key) as http:

        def poll(clone: int, cursor: int, **more: Any) -> tuple[list[int], int]:
            target = {"sampling_session_id": sampler_id, "cloned_sampler_id": clone}
            answer = http.post("/retrieve_futures", json={"target": target, "prev_cursor": cursor, **more}).json()
            assert all(end["state"] == "finished" for end in answer["completions"])
            assert all(end["response_payload_uncompressed_size"] > 0 for end in answer["completions"])
            return [int(end["request_id"].rpartition(":")[2]) for end in answer["completions"]], answer["cursor"]

        (none, start), (_, other_start) = poll(0, 0), poll(7, 0)
        assert none == []
        for seq_id in (0, 1, 7_000_000_000):
            http.post("/asample", json=sample_body(sampler_id, seq_id)).raise_for_status()
        seen, cursor = list[int](), start
        while len(seen) < 2:
            told, cursor = poll(0, cursor)
            seen += told
        assert sorted(seen) == [0, 1]
        assert poll(7, other_start)[0] == [7_000_000_000]
        began = time.monotonic()
        assert poll(0, cursor, timeout=0) == ([], cursor)
        assert poll(0, cursor, timeout=0.5) == ([], cursor)
        assert poll(0, start, timeout=0) == ([], cursor)  # It has said to have read further.
        assert 0.4 < time.monotonic() - began < 20
        assert poll(7, 0)[0] == [7_000_000_000]
        stale = http.post("/retrieve_futures", json={"target": {"sampling_session_id": sampler_id}, "prev_cursor": 5})
        assert (stale.status_code, "started again" in stale.json()["detail"]) == (410, True)


def test_a_request_that_expires_is_told(server: ServerProcess, owner: Owner) -> None:
    sampler_id = sampler_of(server, owner.key)
    with server.http(owner.key) as http:
        target = {"sampling_session_id": sampler_id}
        cursor = http.post("/retrieve_futures", json={"target": target}).json()["cursor"]
        body = sample_body(sampler_id, 0) | {"num_samples": 64, "sampling_params": {"max_tokens": 200, "stop": []}}
        request_id = http.post("/asample", json=body).json()["request_id"]
        http.post("/cancel_future", json={"request_id": request_id}).raise_for_status()
        told = http.post("/retrieve_futures", json={"target": target, "prev_cursor": cursor}).json()
        assert [end["request_id"] for end in told["completions"]] == [request_id]
        assert told["completions"][0]["state"] == "failed"
        assert http.post("/retrieve_future", json={"request_id": request_id}).status_code == 410
