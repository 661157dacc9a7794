"""Tenants, keys, sessions and models: what is found, changed and left alone."""

from collections.abc import Callable
from typing import Any

import pytest

from plait.server.database import (
    models,
    sessions,
    tenants,
)
from plait.server.database.errors import AlreadyThere
from plait.server.database.tables import ApiKey
from plait.server.keys import digest, key_id_of, make_key, matches
from tests.server.database.rows import ids, make_model, make_session

Run = Callable[..., Any]


def test_keys(run: Run) -> None:
    assert not run(tenants.has_keys)
    key_id, key = make_key()
    run(tenants.add_key, ApiKey(key_id=key_id, tenant_id="ann", role="admin", secret_digest=digest(key), created_s=1.0, label="CI"))
    found = run(tenants.get_key, key_id_of(key))
    assert matches(key, found.secret_digest)
    assert found.secret_digest not in repr(found)
    assert (found.role, found.label, found.strict, found.revoked_s) == ("admin", "CI", False, None)
    assert run(tenants.get_key, key_id, "bob") is None
    assert run(tenants.revoke_key, key_id, "bob", 5.0) is None
    assert run(tenants.has_keys)
    assert run(tenants.revoke_key, key_id, "ann", 5.0).revoked_s == 5.0
    assert run(tenants.revoke_key, key_id, "ann", 6.0).revoked_s == 5.0
    assert not run(tenants.has_keys)
    assert ids(run(tenants.list_keys, "ann", 10, 0), "key_id") == ([key_id], 1)
    assert run(tenants.list_keys, "bob", 10, 0) == ([], 0)


def test_tenants(run: Run) -> None:
    assert run(tenants.ensure_tenant, "ann").tenant_id == "ann"
    run(tenants.change_tenant, "ann", 3.0, {"live_adapters": 2})
    tenant = run(tenants.get_tenant, "ann")
    assert (tenant.weight, tenant.quotas) == (3.0, {"live_adapters": 2})
    assert run(tenants.change_tenant, "nobody", 1.0, None) is None
    assert ids(run(tenants.list_tenants, 1, 1), "tenant_id") == (["bob"], 2)


def test_life_of_a_session(run: Run) -> None:
    run(sessions.record_heartbeats, {"s": 10.0, "none": 11.0})
    run(sessions.record_heartbeats, {"s": 9.0})
    assert run(sessions.get_session, "s", "ann").heartbeat_s == 10.0
    assert run(sessions.get_session, "s", "bob") is None
    assert run(sessions.get_session, "s", None).tenant_id == "ann"
    assert {row.session_id for row in run(sessions.open_sessions)} == {"s", "b"}
    ended = run(sessions.end_session, "s", "success", 20.0)
    assert (ended.ended_s, ended.end_reason) == (20.0, "success")
    assert run(sessions.end_session, "s", "errored", 30.0).end_reason == "success"
    run(sessions.record_heartbeats, {"s": 40.0})
    assert run(sessions.get_session, "s", "ann").heartbeat_s == 10.0
    assert [row.session_id for row in run(sessions.open_sessions)] == ["b"]
    assert run(sessions.end_session, "none", "success", 1.0) is None


def test_search_of_sessions(run: Run) -> None:
    for number, name in enumerate(("Math run 50%", "math other", None)):
        row = make_session(f"x{number}", created_s=10.0 + number, display_name=name, user_metadata={"n": str(number), "a b": "c"})
        run(sessions.add_session, row)
    run(sessions.end_session, "x1", "errored", 99.0)
    assert run(sessions.set_project, "x2", "ann", "p").project_id == "p"
    assert run(sessions.set_project, "x2", "bob", "q") is None

    def found(**conditions: Any) -> list[str]:
        return [row.session_id for row in run(sessions.search_sessions, "ann", **conditions)]

    assert found() == ["x2", "x1", "x0", "s"]
    assert found(display_name="RUN math") == ["x0"]
    assert found(display_name="50%") == ["x0"]
    assert found(display_name="%") == ["x0"]
    assert found(display_name="math", session_id="s") == ["x1", "x0", "s"]
    assert found(user_metadata={"n": "1"}) == ["x1"]
    assert found(user_metadata={"n": "1", "a b": "c"}) == ["x1"]
    assert found(user_metadata={"n": "1", "a b": "d"}) == []
    assert found(project_ids=["p", "q"]) == ["x2"]
    assert found(project_ids=[]) == []
    run(sessions.end_session, "x0", "copied", 99.0)
    assert found(states=["errored"]) == ["x1"]
    assert found(states=["success"]) == found(states=[]) == []
    assert found(states=["cancelled"]) == ["x0"]
    assert found(states=["live"]) == ["x2", "s"]
    assert found(states=["live"], alive_since_s=12.0) == ["x2"]
    assert found(states=["live", "cancelled", "errored"]) == ["x2", "x1", "x0", "s"]
    assert found(limit=2) == ["x2", "x1"]
    assert found(after=(11.0, "x1")) == ["x0", "s"]
    assert [row.session_id for row in run(sessions.search_sessions, None)] == ["x2", "x1", "x0", "s", "b"]


@pytest.mark.parametrize("key", ["it's", 'a"b', "a.b", "$", "ü", "0", "", "a\\b", "\n", "%"])
def test_metadata_keys_of_any_kind(run: Run, key: str) -> None:
    run(sessions.add_session, make_session("x", user_metadata={key: "yes"}))
    assert [row.session_id for row in run(sessions.search_sessions, "ann", user_metadata={key: "yes"})] == ["x"]
    assert run(sessions.search_sessions, "ann", user_metadata={key: "no"}) == []


def test_models(run: Run) -> None:
    run(models.add_model, make_model("s:train:1", created_s=2.0))
    with pytest.raises(AlreadyThere, match="Model s:train:1 exists"):
        run(models.add_model, make_model("s:train:1"))
    run(sessions.set_project, "s", "ann", "p")
    assert ids(run(models.list_models, "ann", 1, 0), "model_id") == (["s:train:1"], 2)
    assert ids(run(models.list_models, "ann", 10, 0, project_id="p"), "model_id") == (["s:train:1", "s:train:0"], 2)
    assert run(models.list_models, "ann", 10, 0, project_id="q") == ([], 0)
    assert run(models.get_model, "s:train:1", "bob") is None
    assert run(models.model_ids_of_session, "s") == ["s:train:0", "s:train:1"]
    run(models.record_requests, {"s:train:0": 50.0, "s:train:1": 0.5})
    run(models.mark_corrupted, "s:train:1")
    first, second = (run(models.get_model, f"s:train:{number}", "ann") for number in range(2))
    assert (first.last_request_s, first.corrupted) == (50.0, False)
    assert (second.last_request_s, second.corrupted) == (2.0, True)
    assert len(run(models.sessions_of_live_models, "ann")) == 2
    assert run(models.close_models, "s") == ["s:train:0", "s:train:1"]
    assert run(models.close_models, "s") == []
    assert [model.model_id for model in run(models.live_models)] == ["b:train:0"]
    assert len(run(models.sessions_of_live_models, "ann")) == 0
