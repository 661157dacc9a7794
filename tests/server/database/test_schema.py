"""The revisions make the schema that the tables describe, keep data, and are applied wholly or not at all."""

import json
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Engine, inspect, text

from plait.server.database.calls import pending_calls
from plait.server.database.checkpoints import get_checkpoint
from plait.server.database.database import Database
from plait.server.database.engine import make_engine, parse_url
from plait.server.database.errors import DatabaseError, SchemaError
from plait.server.database.managed import add_upload, get_upload
from plait.server.database.samplers import get_sampler
from plait.server.database.schema import current_revision, upgrade
from plait.server.database.sessions import get_session
from plait.server.database.tables import Base, Upload
from plait.server.database.usage import Usage, add_usage, total_usage

PREVIOUS, NEWEST = "0001", "0003"

PREVIOUS_DATA = {
    "tenants": {"tenant_id": "ann", "weight": 2.0, "quotas": json.dumps({"live_adapters": 3})},
    "sessions": {"session_id": "s", "tenant_id": "ann", "created_s": 1.5, "heartbeat_s": 2.5, "tags": json.dumps(["a", "b"])},
    "models": {
        "model_id": "s:train:0",
        "session_id": "s",
        "tenant_id": "ann",
        "base_model": "base",
        "lora": json.dumps({"rank": 8}),
        "created_s": 1.5,
        "last_request_s": 1.5,
        "state": "live",
        "corrupted": False,
        "source_folder": "",
        "with_optimizer": True,
    },
    "calls": {
        "model_id": "s:train:0",
        "seq_id": 2**40,
        "kind": "optim_step",
        "payload_digest": "d",
        "created_s": 1.5,
        "payload": b"\0\xff",
        "state": "pending",
    },
    "samplers": {
        "sampler_id": "s:sample:0",
        "session_id": "s",
        "tenant_id": "ann",
        "base_model": "base",
        "created_s": 1.5,
        "policy_task": "s:train:0",
        "policy_version": 3,
        "folder": "f",
        "digest": "d",
    },
    "checkpoints": {
        "tinker_path": "tinker://s:train:0/weights/a",
        "tenant_id": "ann",
        "model_id": "s:train:0",
        "kind": "training",
        "name": "a",
        "folder": "f",
        "digest": "d",
        "size_bytes": 2**40,
        "base_model": "base",
        "lora": json.dumps({"rank": 8}),
        "created_s": 1.5,
        "version": 3,
        "has_optimizer": True,
        "public": False,
    },
    "usage": {
        "tenant_id": "ann",
        "base_model": "base",
        "hour": "1970-01-01T00",
        "prompt_tokens": 1,
        "cached_tokens": 2,
        "sampled_tokens": 3,
        "trained_tokens": 4,
        "device_s": 0.5,
        "num_requests": 1,
    },
}
"""A row of each table, as the previous schema stored it."""


def engine_of(url: str) -> Engine:
    return make_engine(parse_url(url))


def fill_previous(engine: Engine) -> None:
    upgrade(engine, PREVIOUS)
    with engine.begin() as connection:
        for table, values in PREVIOUS_DATA.items():
            columns = ", ".join(values)
            parameters = ", ".join(
                f"CAST(:{name} AS JSONB)" if _is_json(engine, value) else f":{name}" for name, value in values.items()
            )
            connection.execute(text(f"INSERT INTO {table} ({columns}) VALUES ({parameters})"), values)


def _is_json(engine: Engine, value: Any) -> bool:
    return engine.dialect.name == "postgresql" and isinstance(value, str) and value.startswith(("{", "["))


def test_the_revisions_make_what_the_tables_describe(url: str) -> None:
    engine = engine_of(url)
    upgrade(engine)
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, Base.metadata) == []
        indexes = {index["name"] for index in inspect(connection).get_indexes("calls")}
    assert indexes == {"ix_calls_pending", "ix_calls_ended"}
    assert current_revision(engine) == NEWEST
    engine.dispose()


def test_a_database_of_the_previous_schema_keeps_its_data(url: str) -> None:
    engine = engine_of(url)
    fill_previous(engine)
    assert current_revision(engine) == PREVIOUS
    engine.dispose()
    database = Database.open(url)
    assert current_revision(database._engine) == NEWEST
    session = database.submit(get_session, "s", "ann").result(60)
    calls = database.submit(pending_calls).result(60)
    checkpoint = database.submit(get_checkpoint, "tinker://s:train:0/weights/a", "ann", 9.0).result(60)
    sampler = database.submit(get_sampler, "s:sample:0", "ann").result(60)
    assert sampler is not None
    assert (sampler.policy_version, sampler.size_bytes) == (3, 0)
    assert session is not None
    assert (session.tags, session.heartbeat_s, session.user_metadata) == (["a", "b"], 2.5, None)
    assert [(call.seq_id, call.payload, call.kind) for call in calls] == [(2**40, b"\0\xff", "optim_step")]
    assert checkpoint is not None
    assert (checkpoint.size_bytes, checkpoint.lora, checkpoint.has_optimizer) == (2**40, {"rank": 8}, True)
    database.submit(add_usage, "ann", "base", 60.0, Usage(sampled_tokens=10)).result(60)
    totals = database.submit(total_usage, "ann", 0.0, 3600.0).result(60)
    assert totals[("ann", "base")] == Usage(1, 2, 13, 4, 0.5, 1)
    upload = Upload(upload_id="u", tenant_id="ann", name="n", folder="f", size_bytes=1, created_s=1.0)
    database.submit(add_upload, upload).result(60)
    assert database.submit(get_upload, "u", "ann").result(60) is not None
    database.stop()


def test_opening_again_changes_nothing(url: str) -> None:
    for _ in range(2):
        database = Database.open(url)
        assert current_revision(database._engine) == NEWEST
        database.stop()


def test_an_upgrade_that_fails_changes_nothing(url: str) -> None:
    engine = engine_of(url)
    fill_previous(engine)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE uploads (x INTEGER)"))  # In the way of the last table of the revision.
    with pytest.raises(DatabaseError, match=r"cannot open the database .*uploads.*already exists"):
        Database.open(url)
    assert current_revision(engine) == PREVIOUS
    assert "managed_runs" not in inspect(engine).get_table_names()
    with engine.begin() as connection:
        connection.execute(text("DROP TABLE uploads"))
    engine.dispose()
    Database.open(url).stop()


def test_a_newer_schema_is_refused_and_left_alone(url: str) -> None:
    Database.open(url).stop()
    engine = engine_of(url)
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(SchemaError, match=r"has schema 9999, and this Plait knows none later than 0003.*newer Plait"):
        Database.open(url)
    assert current_revision(engine) == "9999"
    engine.dispose()


def test_tables_of_others_are_left_alone(url: str) -> None:
    engine = engine_of(url)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE sessions (x INTEGER)"))
    with pytest.raises(SchemaError, match="has tables that Plait did not make: sessions"):
        Database.open(url)
    assert inspect(engine).get_table_names() == ["sessions"]
    engine.dispose()
