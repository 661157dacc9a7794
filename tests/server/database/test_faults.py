"""A database that is full, locked, gone or killed: a clear error, and nothing that was acknowledged is lost."""

import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest
from sqlalchemy.orm import Session

from plait.server.database import engine as engine_module
from plait.server.database.audit import add_entry, list_entries
from plait.server.database.calls import add_call, call_keys, get_call
from plait.server.database.database import Database
from plait.server.database.errors import DatabaseError
from plait.server.database.tables import AuditEntry, Tenant
from plait.server.database.tenants import ensure_tenant, get_tenant
from tests.server.database.rows import fill, hold, make_call

WRITER = """
import asyncio, sys
from plait.server.database.audit import add_entry, list_entries
from plait.server.database.calls import add_call
from plait.server.database.database import Database
from tests.server.database.rows import fill, make_call

async def client(database, first):
    for seq_id in range(first, 1 << 40, 8):
        await database.run(lambda session: add_call(session, make_call(seq_id)))
        print(seq_id, flush=True)

async def main():
    database = Database.open(sys.argv[1])
    await database.run(fill)
    await asyncio.gather(*(client(database, n) for n in range(8)))

asyncio.run(main())
"""

FILLER = """
import resource, sys
from plait.server.database.audit import add_entry, list_entries
from plait.server.database.calls import add_call, call_keys
from plait.server.database.database import Database
from plait.server.database.errors import DatabaseError
from tests.server.database.rows import fill, make_call

def add(seq_id):
    return database.submit(add_call, make_call(seq_id, payload=bytes(20_000)))

database = Database.open(sys.argv[1])
database.submit(fill).result()
resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, resource.RLIM_INFINITY))
futures = [add(seq_id) for seq_id in range(300)]
errors = {seq_id: future.exception() for seq_id, future in enumerate(futures)}
failed = {seq_id for seq_id, error in errors.items() if error}
assert failed and len(failed) < 300, failed
assert all(isinstance(errors[seq_id], DatabaseError) for seq_id in failed), errors
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
add(300).result()
stored = {key.seq_id for key in database.submit(call_keys, "s:train:0").result()}
assert stored == set(range(301)) - failed, (stored, failed)
print(errors[max(failed)])
"""


def test_killed_right_after_acknowledging(url: str) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, "-c", WRITER, url], stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        acknowledged = [int(process.stdout.readline()) for _ in range(200)]
        process.send_signal(signal.SIGKILL)
        acknowledged += [int(line) for line in process.stdout.read().split(b"\n") if line]
    assert process.returncode == -signal.SIGKILL
    database = Database.open(url)
    stored = [key.seq_id for key in database.submit(call_keys, "s:train:0").result(60)]
    database.stop()
    assert set(acknowledged) <= set(stored)


def test_writes_that_the_system_refuses(tmp_path: Path) -> None:
    """In a process of its own, whose files may not grow: the commits themselves fail."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", FILLER, f"sqlite:///{tmp_path}/plait.db"]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    assert "Nothing of this was stored" in result.stdout


def test_full_disk(tmp_path: Path) -> None:
    database = Database.open(f"sqlite:///{tmp_path}/plait.db")
    database.submit(fill, num_calls=5).result(60)
    with database._engine.connect() as connection:  # The pool has one connection; the limit stays with it.
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
        connection.exec_driver_sql(f"PRAGMA max_page_count = {pages + 8}")
    release = hold(database)
    small = [database.submit(add_call, make_call(n)) for n in (10, 11)]
    row = make_call(12, payload=bytes(200_000))
    big = database.submit(add_call, row)
    last = database.submit(add_call, make_call(13))
    audited = database.submit(add_entry, AuditEntry(time_s=1.0, tenant_id="ann", action="call_create"))
    release.set()
    with pytest.raises(DatabaseError, match=r"cannot write the database .*full.*Nothing of this was stored.*Make room"):
        big.result(60)
    assert [future.result(60).seq_id for future in (*small, last)] == [10, 11, 13]
    assert audited.result(60).id == 1
    assert database.submit(list_entries, "ann", 0.0, 9.0, 10, 0).result(60)[1] == 1
    keys = database.submit(call_keys, "s:train:0").result(60)
    assert [key.seq_id for key in keys] == [0, 1, 2, 3, 4, 10, 11, 13]
    with database._engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA max_page_count = 1000000")
    assert database.submit(add_call, row).result(60).seq_id == 12
    call = database.submit(get_call, "s:train:0", 12).result(60)
    assert call is not None
    assert call.payload == bytes(200_000)
    database.stop()


def test_locked_by_another_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "PRAGMAS", (*engine_module.PRAGMAS, "busy_timeout = 50"))
    database = Database.open(f"sqlite:///{tmp_path}/plait.db")
    database.submit(fill, num_calls=1).result(60)
    other = sqlite3.connect(tmp_path / "plait.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    blocked = database.submit(add_call, make_call(1))
    with pytest.raises(DatabaseError, match=r"cannot write the database .*locked"):
        blocked.result(60)
    other.execute("COMMIT")
    assert database.submit(add_call, make_call(1)).result(60).seq_id == 1
    assert database.submit(get_call, "s:train:0", 0).result(60) is not None
    other.close()
    database.stop()


def test_another_process_may_write_between(tmp_path: Path) -> None:
    server, tool = (Database.open(f"sqlite:///{tmp_path}/plait.db") for _ in range(2))
    futures = [database.submit(ensure_tenant, f"t{n}") for n in range(20) for database in (server, tool)]
    assert {future.result(60).tenant_id for future in futures} == {f"t{n}" for n in range(20)}
    tool.stop()
    assert server.submit(get_tenant, "t7").result(60) is not None
    server.stop()


def test_lost_connection(postgres_url: str) -> None:
    def lose(session: Session) -> None:
        """The first time, the server ends the connection in the middle of the work."""
        ensure_tenant(session, "during")
        if not losses:
            losses.append(1)
            connection = session.connection().connection.dbapi_connection
            assert isinstance(connection, psycopg.Connection)
            with psycopg.connect(postgres_url, autocommit=True) as other:
                other.execute("SELECT pg_terminate_backend(%s, 60000)", [connection.info.backend_pid])
        ensure_tenant(session, "after")

    losses: list[int] = []
    database = Database.open(postgres_url)
    database.submit(fill).result(60)
    with pytest.raises(DatabaseError, match="cannot write the database"):
        database.submit(lose).result(60)
    assert database.submit(get_tenant, "during").result(60) is None
    database.submit(lose).result(60)
    tenants = [database.submit(get_tenant, name).result(60) for name in ("ann", "during", "after")]
    assert None not in tenants
    database.stop()


def test_file_that_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "plait.db").write_bytes(b"something else" * 1000)
    with pytest.raises(DatabaseError, match=r"cannot open the database .*not a database"):
        Database.open(f"sqlite:///{tmp_path}/plait.db")
    with pytest.raises(DatabaseError, match=r"cannot open the database .*unable to open"):
        Database.open(f"sqlite:///{tmp_path}/no/such/folder/plait.db")


def test_server_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DatabaseError, match="cannot open the database") as caught:
        Database.open(f"postgresql://user:secret@/name?host={tmp_path}")
    assert "secret" not in str(caught.value)


def test_a_work_may_raise_anything(database: Database) -> None:
    def leave(_session: Session) -> None:
        raise SystemExit(3)

    assert isinstance(database.submit(leave).exception(60), SystemExit)
    assert database.submit(lambda session: session.get(Tenant, "x")).result(60) is None
