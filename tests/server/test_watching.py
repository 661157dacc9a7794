"""Health and metrics of a server that runs."""

import time
from typing import Any

import httpx
import tinker
from prometheus_client.parser import text_string_to_metric_families

from tests.server.e2e.data import datum

Values = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def values(server: Any) -> Values:
    answer = httpx.get(f"{server.url}/metrics", timeout=120)
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain")
    families = text_string_to_metric_families(answer.text)
    return {(s.name, tuple(sorted(s.labels.items()))): s.value for family in families for s in family.samples}


def test_it_is_well_and_ready_without_a_key(server: Any) -> None:
    assert httpx.get(f"{server.url}/healthz", timeout=120).json() == {"status": "ok"}
    assert httpx.get(f"{server.url}/readyz", timeout=120).json() == {"status": "ready"}


def test_whoever_opens_the_address_gets_the_page_of_the_api(server: Any) -> None:
    assert httpx.get(f"{server.url}/").headers["location"] == "/docs"


def test_a_body_that_is_no_json_is_told_as_such(server: Any) -> None:
    headers = {"X-API-Key": server.admin.key, "content-type": "application/json"}
    told = httpx.post(f"{server.url}/api/v1/create_session", headers=headers, content="{bad").json()["detail"]
    assert told.startswith("the body is not JSON: ")
    error = httpx.post(f"{server.url}/v1/completions", headers=headers, content='{"model": ').json()["error"]
    assert error["message"].startswith("the body is not JSON: ")
    assert error["param"] is None


IDLE = ("plait_accepted_samples", "plait_waiting_calls", "plait_pending_futures")


def settled(server: Any, before: Values) -> Values:
    """Once all has ended, and the trainer has told how busy it was since `before`, which it does when it has nothing to do."""
    deadline_s = time.monotonic() + 120
    base = ("base_model", str(server.model))
    busy = "plait_worker_busy_seconds_total", (base, ("worker", "train"))
    rows = [(name, (base,)) for name in ("plait_waiting_samples", "plait_running_samples")]
    while True:
        found = values(server)
        if found.get(busy, 0.0) > before.get(busy, 0.0) and not any(found[key] for key in [*rows, *((name, ()) for name in IDLE)]):
            return found
        assert time.monotonic() < deadline_s, found
        time.sleep(0.1)


def test_metrics_tell_of_training_and_sampling(server: Any) -> None:
    before = values(server)
    tenant = server.tenant()
    training = server.client_for(tenant.key).create_lora_training_client(base_model=server.models[0], rank=2).result()
    data = [datum([1, 2, 3], target_tokens=[2, 3, 4], weights=[1.0] * 3)]
    training.forward_backward(data, "cross_entropy").result()
    training.optim_step(tinker.AdamParams(learning_rate=1e-3)).result()
    sampler = training.save_weights_and_get_sampling_client().result()
    sampler.sample(tinker.ModelInput.from_ints([5, 6]), 2, tinker.SamplingParams(max_tokens=3, seed=1)).result()
    after = settled(server, before)

    def grown(name: str, **labels: str) -> float:
        key = name, tuple(sorted(labels.items()))
        return after.get(key, 0.0) - before.get(key, 0.0)

    base = (("base_model", str(server.model)),)
    assert grown("plait_calls_total", kind="optim_step", outcome="done") == 1
    assert grown("plait_call_wait_seconds_count", kind="forward_backward") == 1
    assert grown("plait_call_run_seconds_sum", kind="forward_backward") > 0
    assert grown("plait_sample_wait_seconds_count") == grown("plait_sample_seconds_count") == 2
    assert grown("plait_tokens_total", tenant=tenant.tenant_id, type="trained") == 3
    assert 2 <= grown("plait_tokens_total", tenant=tenant.tenant_id, type="sampled") <= 6
    assert grown("plait_worker_busy_seconds_total", base_model=str(server.model), worker="train") > 0
    assert grown("plait_http_requests_total", method="POST", route="/api/v1/optim_step", status="200") == 1
    assert after["plait_model_version", (("model", training.model_id),)] == 1
    assert after["plait_resident_adapters", base] >= 1
    assert after["plait_live_sessions", ()] >= 1
    for name in ("waiting_samples", "running_samples"):
        assert after[f"plait_{name}", base] == 0
    for name in ("accepted_samples", "waiting_calls", "pending_futures", "stopping"):
        assert after[f"plait_{name}", ()] == 0
    assert after["plait_held_futures", ()] > 0


def test_metrics_are_for_this_machine_and_for_operators(server: Any) -> None:
    url, proxied = f"{server.url}/metrics", {"X-Forwarded-For": "203.0.113.9"}
    assert httpx.get(url, headers=proxied, timeout=120).status_code == 401
    assert httpx.get(url, headers=proxied | {"X-API-Key": server.tenant().key}, timeout=120).status_code == 403
    assert httpx.get(url, headers=proxied | {"Authorization": f"Bearer {server.admin.key}"}, timeout=120).status_code == 200
    assert httpx.get(url, headers={"X-API-Key": "tml-000000000000-wrong"}, timeout=120).status_code == 401


def test_a_request_can_be_found_in_the_log(server: Any) -> None:
    answer = httpx.get(f"{server.url}/v1/usage", headers={"X-Request-ID": "find-me"}, timeout=120)
    assert (answer.status_code, answer.headers["x-request-id"]) == (401, "find-me")
