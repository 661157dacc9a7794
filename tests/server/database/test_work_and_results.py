"""Calls, samplers, checkpoints, usage and managed runs: what is found, changed and left alone."""

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy.orm import Session

from plait.server.database import (
    audit,
    calls,
    checkpoints,
    effective,
    managed,
    samplers,
    sessions,
    tenants,
    usage,
)
from plait.server.database.database import Database
from plait.server.database.errors import AlreadyThere
from plait.server.database.tables import AuditEntry, ManagedRun, Sampler, Upload
from tests.server.database.rows import fill, ids, make_call, make_checkpoint

Run = Callable[..., Any]


def test_life_of_a_call(run: Run) -> None:
    model_id = "s:train:0"
    for seq_id in (1, 0, 2):
        run(calls.add_call, make_call(seq_id))
    with pytest.raises(AlreadyThere):
        run(calls.add_call, make_call(1, payload_digest="other"))
    assert [call.seq_id for call in run(calls.pending_calls)] == [0, 1, 2]
    assert run(calls.finish_call, model_id, 0, b"result", "proto", 5.0, keep_payload=True)
    assert run(calls.finish_call, model_id, 1, b"{}", "json", 6.0, version=1)
    assert run(calls.fail_call, model_id, 2, "no", "user", 7.0)
    assert not run(calls.finish_call, model_id, 2, b"", "json", 8.0)
    assert not run(calls.fail_call, model_id, 9, "no", "user", 8.0)
    first, second, third = (run(calls.get_call, model_id, seq_id) for seq_id in range(3))
    assert (first.state, first.payload, first.result, first.result_type, first.ended_s) == (
        "done",
        b"payload",
        b"result",
        "proto",
        5.0,
    )
    assert (second.payload, second.version) == (None, 1)
    assert (third.state, third.error, third.category, third.result) == ("failed", "no", "user", None)
    assert run(calls.pending_calls, model_id) == []
    assert (run(calls.last_version, model_id), run(calls.last_version, "b:train:0")) == (1, None)
    assert run(calls.call_keys, model_id, 1) == [
        calls.CallKey(1, "forward_backward", "digest1", "done"),
        calls.CallKey(2, "forward_backward", "digest2", "failed"),
    ]
    assert [call.seq_id for call in run(calls.calls_after, model_id, 0)] == [1, 2]
    run(calls.add_call, make_call(3))
    assert run(calls.fail_call, model_id, 3, "no", "user", 8.0, keep_payload=True)
    assert run(calls.get_call, model_id, 3).payload == b"payload"
    run(calls.drop_payloads, model_id, 1)
    assert run(calls.get_call, model_id, 0).payload is None
    assert run(calls.drop_results, 6.0) == 1
    assert run(calls.get_call, model_id, 0).result is None
    assert run(calls.get_call, model_id, 1).result == b"{}"
    assert (run(calls.last_seq_id, model_id), run(calls.last_seq_id, "b:train:0")) == (3, None)


def test_pending_payloads_are_never_dropped(run: Run) -> None:
    run(calls.add_call, make_call(0))
    run(calls.drop_payloads, "s:train:0", 5)
    assert run(calls.get_call, "s:train:0", 0).payload == b"payload"


def test_samplers(run: Run) -> None:
    for number, folder in enumerate(("", "f", "f")):
        row = Sampler(
            sampler_id=f"s:sample:{number}", session_id="s", tenant_id="ann", base_model="base", created_s=number, folder=folder
        )
        run(samplers.add_sampler, row)
    assert run(samplers.get_sampler, "s:sample:1", "ann").folder == "f"
    assert run(samplers.get_sampler, "s:sample:1", "bob") is None
    assert run(samplers.sampler_ids_of_session, "s") == ["s:sample:0", "s:sample:1", "s:sample:2"]
    assert ids(run(samplers.list_samplers, "ann", 2, 1), "sampler_id") == (["s:sample:1", "s:sample:0"], 3)
    assert run(samplers.folders_in_use) == {"f"}


def test_checkpoints(run: Run) -> None:
    old, new = make_checkpoint("old"), make_checkpoint("new", created_s=2.0, user_metadata={"step": "2"})
    sampler = make_checkpoint("snap", kind="sampler", created_s=3.0, expires_s=100.0)
    for checkpoint in (old, new, sampler, make_checkpoint("theirs", "bob", "b:train:0", public=True)):
        run(checkpoints.add_checkpoint, checkpoint)
    with pytest.raises(AlreadyThere):
        run(checkpoints.add_checkpoint, make_checkpoint("old"))
    path = "tinker://s:train:0/weights/new"
    get, theirs = checkpoints.get_checkpoint, "tinker://b:train:0/weights/theirs"
    assert run(get, path, "ann", 0.0).user_metadata == {"step": "2"}
    assert run(get, path, "bob", 0.0) is None
    assert run(get, theirs, "ann", 0.0).tenant_id == "bob"
    assert run(checkpoints.delete_checkpoint, theirs, "ann") is None
    assert run(checkpoints.set_public, theirs, "ann", False) is None
    run(checkpoints.set_public, theirs, "bob", False)
    assert run(get, theirs, "ann", 0.0) is None
    assert ids(run(checkpoints.list_checkpoints, "ann", 99.0, 2, 0), "name") == (["snap", "new"], 3)
    assert [row.name for row in run(checkpoints.checkpoints_of_model, "s:train:0", "ann", 100.0)] == ["new", "old"]
    latest = run(checkpoints.latest_checkpoints, ["s:train:0", "b:train:0", *map(str, range(1200))], "training", 0.0)
    assert {model_id: row.name for model_id, row in latest.items()} == {"s:train:0": "new", "b:train:0": "theirs"}
    assert run(checkpoints.delete_checkpoint, path, "ann").folder == "f"
    assert run(get, path, "ann", 0.0) is None


def test_expiry_of_checkpoints(run: Run) -> None:
    path = "tinker://s:train:0/weights/a"
    run(checkpoints.add_checkpoint, make_checkpoint("a", expires_s=50.0))
    assert run(checkpoints.get_checkpoint, path, "ann", 49.9) is not None
    assert run(checkpoints.get_checkpoint, path, None, 50.0) is None
    assert run(checkpoints.next_expiry_s) == 50.0
    assert [row.name for row in run(checkpoints.expired_checkpoints, 50.0)] == ["a"]
    assert run(checkpoints.set_expiry, path, "ann", None).expires_s is None
    assert run(checkpoints.expired_checkpoints, 1e9) == []
    assert run(checkpoints.next_expiry_s) is None


def test_replacing_a_checkpoint(run: Run) -> None:
    assert run(checkpoints.replace_checkpoint, make_checkpoint("a", folder="one")) is None
    assert run(checkpoints.replace_checkpoint, make_checkpoint("a", folder="two")).folder == "one"
    assert run(checkpoints.get_checkpoint, "tinker://s:train:0/weights/a", "ann", 0.0).folder == "two"
    with pytest.raises(AlreadyThere):
        run(checkpoints.replace_checkpoint, make_checkpoint("a", "bob"))


def test_stored_bytes(run: Run) -> None:
    assert run(checkpoints.stored_bytes, "ann") == 0
    run(sessions.set_project, "s", "ann", "p")
    run(checkpoints.add_checkpoint, make_checkpoint("a", size_bytes=2**40))
    run(checkpoints.add_checkpoint, make_checkpoint("b", size_bytes=1))
    run(managed.add_upload, Upload(upload_id="u", tenant_id="ann", name="n", folder="f", size_bytes=7, created_s=1.0))
    assert run(checkpoints.stored_bytes, "ann") == 2**40 + 8
    assert run(checkpoints.stored_by_project, "ann") == [("p", 2, 2**40 + 1)]
    assert run(sessions.storage_of, "s") == (2, 2**40 + 1)
    assert run(sessions.storage_of, "b") == (0, 0)
    assert run(checkpoints.stored_bytes, "bob") == 0


def test_usage(run: Run) -> None:
    hour_s = 3600.0
    for time_s, tokens in ((0.0, 1), (hour_s - 1, 2), (hour_s, 4)):
        run(usage.add_usage, "ann", "base", time_s, usage.Usage(sampled_tokens=tokens, device_s=0.5, num_requests=1))
    run(usage.add_usage, "bob", "base", 0.0, usage.Usage(trained_tokens=8))
    rows, total = run(usage.list_usage, "ann", 0.0, 2 * hour_s, 10, 0)
    assert [(row.hour, row.sampled_tokens, row.device_s, row.num_requests) for row in rows] == [
        ("1970-01-01T00", 3, 1.0, 2),
        ("1970-01-01T01", 4, 0.5, 1),
    ]
    assert total == 2
    assert run(usage.list_usage, "ann", hour_s, 2 * hour_s, 10, 0)[1] == 1
    assert run(usage.total_usage, "ann", 0.0, 2 * hour_s)[("ann", "base")].sampled_tokens == 7
    assert set(run(usage.total_usage, None, 0.0, hour_s)) == {("ann", "base"), ("bob", "base")}


def test_audit(run: Run) -> None:
    for number in range(3):
        entry = AuditEntry(time_s=float(number), tenant_id="ann", action="key_create", key_id="k", detail={"number": number})
        run(audit.add_entry, entry)
    entries, total = run(audit.list_entries, "ann", 1.0, 9.0, 1, 1)
    assert ([entry.detail for entry in entries], total) == ([{"number": 2}], 2)
    assert run(audit.list_entries, "bob", 0.0, 9.0, 10, 0) == ([], 0)


def test_effective_settings(run: Run) -> None:
    assert run(effective.get_effective) is None
    run(effective.put_effective, "a = 1")
    run(effective.put_effective, "a = 2")
    assert run(effective.get_effective) == "a = 2"


def test_managed_runs_and_uploads(run: Run) -> None:
    for number in range(2):
        run(
            managed.add_run,
            ManagedRun(run_id=f"r{number}", tenant_id="ann", state="running", toml="", folder="f", created_s=float(number)),
        )
    assert ids(run(managed.list_runs, "ann", 1, 0), "run_id") == (["r1"], 2)
    assert run(managed.get_run, "r0", "bob") is None
    assert run(managed.set_run_state, "r0", "done", 9.0).ended_s == 9.0
    assert [row.run_id for row in run(managed.unfinished_runs)] == ["r1"]
    run(managed.add_upload, Upload(upload_id="u", tenant_id="ann", name="n", folder="f", size_bytes=7, created_s=1.0))
    assert run(managed.get_upload, "u", "bob") is None
    assert run(managed.get_upload_named, "n", "ann").upload_id == "u"
    assert run(managed.get_upload_named, "n", "bob") is None
    assert ids(run(managed.list_uploads, "ann", 5, 0), "upload_id") == (["u"], 1)
    assert run(managed.delete_upload, "u", "bob") is None
    assert run(managed.delete_upload, "u", "ann").name == "n"
    assert run(managed.get_upload, "u", "ann") is None


def test_changes_are_stored_without_a_commit_of_the_work(database: Database) -> None:
    def both(session: Session) -> None:
        fill(session)
        tenant = tenants.get_tenant(session, "ann")
        assert tenant is not None
        tenant.weight = 4.0

    database.submit(both).result(60)
    tenant = database.submit(lambda session: tenants.get_tenant(session, "ann")).result(60)
    assert tenant is not None
    assert tenant.weight == 4.0
