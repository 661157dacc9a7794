"""Operators make and revoke keys, set weights and quotas, and see what was used and done; members do not."""

import time
from typing import Any

import httpx
import pytest
import tinker


@pytest.fixture
def admin(server: Any) -> Any:
    with root(server, server.admin.key) as client:
        yield client


def root(server: Any, key: str) -> httpx.Client:
    return httpx.Client(base_url=server.url, headers={"X-API-Key": key}, timeout=60)


def test_a_key_is_shown_once_and_opens_until_it_is_revoked(server: Any, admin: httpx.Client) -> None:
    answer = admin.post("/v1/keys", json={"tenant_id": "key-owner", "label": "laptop", "strict": True})
    assert answer.status_code == 201
    made = answer.json()
    assert made["key"].startswith(f"tml-{made['key_id']}-")
    assert (made["tenant_id"], made["role"], made["label"], made["strict"]) == ("key-owner", "member", "laptop", True)
    listed = admin.get("/v1/keys", params={"tenant_id": "key-owner"})
    assert [row["key_id"] for row in listed.json()["keys"]] == [made["key_id"]]
    assert made["key"] not in listed.text
    with root(server, made["key"]) as owner:
        assert owner.get("/v1/usage").status_code == 200
        revoked = admin.delete(f"/v1/keys/{made['key_id']}")
        assert revoked.json()["revoked_s"] == pytest.approx(time.time(), abs=60)
        assert owner.get("/v1/usage").status_code == 401
    assert admin.delete(f"/v1/keys/{made['key_id']}").json() == revoked.json()
    actions = [entry["action"] for entry in admin.get("/v1/audit", params={"limit": 1000}).json()["entries"]]
    assert actions.count("key_revoke") >= 1
    assert "key_create" in actions


def test_keys_come_page_by_page(admin: httpx.Client) -> None:
    for _ in range(3):
        admin.post("/v1/keys", json={"tenant_id": "pages"})
    page = admin.get("/v1/keys", params={"tenant_id": "pages", "limit": 2, "offset": 2}).json()
    assert len(page["keys"]) == 1
    assert page["cursor"] == {"offset": 2, "limit": 2, "total_count": 3}


ADMIN_ROUTES = [
    ("GET", "/v1/keys"), ("POST", "/v1/keys"), ("DELETE", "/v1/keys/abc"), ("GET", "/v1/tenants"),
    ("GET", "/v1/tenants/local"), ("PATCH", "/v1/tenants/local"), ("GET", "/v1/audit"),
]  # fmt: skip


@pytest.mark.parametrize(("method", "path"), ADMIN_ROUTES)
def test_members_are_no_operators(server: Any, method: str, path: str) -> None:
    with root(server, server.tenant().key) as member:
        answer = member.request(method, path, json={} if method in ("POST", "PATCH") else None)
        assert answer.status_code == 403
        assert "admin" in answer.json()["detail"]
    assert httpx.request(method, server.url + path, json={}, timeout=120).status_code == 401


BAD_REQUESTS = [
    ("POST", "/v1/keys", {"role": "king"}, "role"),
    ("POST", "/v1/keys", {"tenant": "x"}, "tenant"),
    ("POST", "/v1/keys", {"tenant_id": "../x"}, "tenant_id"),
    ("POST", "/v1/keys", {"label": "a\x00b"}, "label"),
    ("PATCH", "/v1/tenants/local", {"weight": 0}, "weight"),
    ("PATCH", "/v1/tenants/local", {"quotas": {"live_adapters": -1}}, "live_adapters"),
    ("PATCH", "/v1/tenants/local", {"quotas": {"adapters": 1}}, "adapters"),
    ("GET", "/v1/usage?from_s=-1", None, "from_s"),
    ("GET", "/v1/usage?to_s=inf", None, "to_s"),
    ("GET", "/v1/usage?nonsense=1", None, "nonsense"),
    ("GET", "/v1/audit?limit=0", None, "limit"),
]


@pytest.mark.parametrize(("method", "path", "body", "field"), BAD_REQUESTS)
def test_bad_requests_name_the_field(admin: httpx.Client, method: str, path: str, body: Any, field: str) -> None:
    answer = admin.request(method, path, json=body)
    assert answer.status_code == 422
    assert field in answer.json()["detail"]


def test_what_is_not_there_is_404(admin: httpx.Client) -> None:
    assert admin.delete("/v1/keys/nobody").status_code == 404
    assert admin.get("/v1/tenants/nobody").status_code == 404
    assert admin.patch("/v1/tenants/nobody", json={"weight": 2}).status_code == 404


def test_weight_and_quotas_hold_at_once(server: Any, admin: httpx.Client) -> None:
    tenant = server.tenant()
    path = f"/v1/tenants/{tenant.tenant_id}"
    usual = admin.patch(path, json={}).json()
    changed = admin.patch(path, json={"weight": 2.5, "quotas": {"live_adapters": 0}}).json()
    assert changed["weight"] == 2.5
    assert changed["quotas"]["live_adapters"] == 0
    assert changed["quotas"] == {**usual["quotas"], "live_adapters": 0}
    client = server.client_for(tenant.key)
    with pytest.raises(tinker.APIStatusError, match="live_adapters is 0, and 0 is the limit"):
        client.create_lora_training_client(base_model=server.models[0], rank=2).result()
    assert admin.patch(path, json={"weight": 1.0}).json()["quotas"]["live_adapters"] == 0
    reset = admin.patch(path, json={"quotas": None}).json()
    assert reset == usual
    assert client.create_lora_training_client(base_model=server.models[0], rank=2).result()
    listed = {row["tenant_id"]: row for row in admin.get("/v1/tenants", params={"limit": 1000}).json()["tenants"]}
    assert listed[tenant.tenant_id] == reset


def test_everybody_sees_what_they_used_and_operators_what_all_did(server: Any, admin: httpx.Client) -> None:
    one, two = server.tenant(), server.tenant()
    sampler = server.client_for(one.key).create_sampling_client(base_model=server.models[0]).result()
    params = tinker.SamplingParams(max_tokens=4, seed=1)
    sampler.sample(tinker.ModelInput.from_ints([5, 6, 7]), num_samples=1, sampling_params=params).result()
    with root(server, one.key) as client, root(server, two.key) as stranger:
        (row,) = client.get("/v1/usage").json()["usage"]
        assert row["tenant_id"] == one.tenant_id
        assert row["prompt_tokens"] + row["cached_tokens"] == 3
        assert 1 <= row["sampled_tokens"] <= 4
        assert stranger.get("/v1/usage").json()["usage"] == []
        assert stranger.get("/v1/usage", params={"tenant_id": one.tenant_id}).status_code == 404
        assert client.get("/v1/usage", params={"from_s": time.time() + 7200}).json()["usage"] == []
    assert row in admin.get("/v1/usage").json()["usage"]
    assert admin.get("/v1/usage", params={"tenant_id": two.tenant_id}).json() == {"usage": [], "stored_bytes": {two.tenant_id: 0}}
