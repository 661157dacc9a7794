"""What listings ask of the database beside the rows of one table."""

from typing import Any

from plait.server.audit import nouns_of
from plait.server.database import audit, calls, models
from plait.server.database.tables import AuditEntry
from tests.server.database.rows import make_call, make_model


def test_the_latest_call_of_each_model(run: Any) -> None:
    run(models.add_model, make_model("s:train:1"))
    for model_id, seq_id, created_s in [("s:train:0", 2, 9.0), ("s:train:0", 10, 7.0), ("b:train:0", 1, 3.0)]:
        run(calls.add_call, make_call(seq_id, model_id, created_s=created_s))
    asked = ["s:train:0", "s:train:1", "b:train:0"]
    assert run(calls.last_call_s, asked) == {"s:train:0": 7.0, "b:train:0": 3.0}
    assert run(calls.last_call_s, []) == {}


def test_closing_one_model(run: Any) -> None:
    assert run(models.close_model, "s:train:0", "bob") is None
    assert run(models.get_model, "s:train:0", None).state == "live"
    assert run(models.close_model, "s:train:0", "ann").state == "closed"
    assert [model.model_id for model in run(models.live_models)] == ["b:train:0"]


def test_audit_by_noun(run: Any) -> None:
    for number, action in enumerate(("checkpoint_delete", "checkpoints_x", "key_revoke", "session_create")):
        run(audit.add_entry, AuditEntry(time_s=float(number), tenant_id="ann", action=action))

    def found(event_type: str) -> list[str]:
        return [entry.action for entry in run(audit.list_entries, "ann", 0.0, 9.0, 10, 0, nouns_of(event_type))[0]]

    assert found("checkpoints") == ["checkpoint_delete"]
    assert found("organizations") == ["key_revoke", "session_create"]
    assert found("teams") == found("projects") == []
    assert len(found("all")) == 4
