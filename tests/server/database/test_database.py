"""Works are stored before they are answered, share transactions, and fail alone."""

import asyncio
import sys
from concurrent.futures import Future

import pytest
from sqlalchemy import event, func, select, text
from sqlalchemy.exc import IntegrityError, ProgrammingError
from sqlalchemy.orm import Session

from plait.server.database.calls import add_call, call_keys, get_call, last_seq_id
from plait.server.database.database import MAX_GROUP, Database
from plait.server.database.engine import parse_url
from plait.server.database.errors import AlreadyThere, DatabaseError, UnstorableValue
from plait.server.database.tables import Call, Model, Tenant
from plait.server.database.tenants import add_tenant, ensure_tenant, get_tenant
from tests.server.database.rows import fill, hold, make_call, make_model


def count_commits(database: Database) -> list[int]:
    commits: list[int] = []
    event.listen(database._engine, "commit", lambda _connection: commits.append(1))
    return commits


def test_answers_are_stored(url: str) -> None:
    async def write() -> None:
        database = Database.open(url)
        await database.run(lambda session: fill(session, num_calls=3))
        tenant = await database.run(lambda session: get_tenant(session, "ann"))
        assert tenant is not None
        assert tenant.weight == 1.0
        await database.close()

    async def read() -> None:
        database = Database.open(url)
        assert await database.run(lambda session: last_seq_id(session, "s:train:0")) == 2
        await database.close()

    asyncio.run(write())
    asyncio.run(read())


def test_waiting_works_share_a_transaction(database: Database) -> None:
    database.submit(fill).result(60)
    release, commits = hold(database), count_commits(database)
    futures = [database.submit(add_call, make_call(n)) for n in range(MAX_GROUP + 10)]
    assert database.num_waiting == MAX_GROUP + 10
    release.set()
    assert [future.result(60).seq_id for future in futures] == list(range(MAX_GROUP + 10))
    assert len(commits) == 3  # The holder's, a full group, and the rest.


def test_works_run_in_the_order_of_submission(database: Database) -> None:
    release, order = hold(database), list[int]()
    futures = [database.submit(lambda _session, n: order.append(n), n) for n in range(20)]
    release.set()
    for future in futures:
        future.result(60)
    assert order == list(range(20))


def test_a_work_that_raises_fails_alone(database: Database) -> None:
    def fail(session: Session) -> None:
        add_tenant(session, Tenant(tenant_id="half"))
        raise ValueError("no")

    database.submit(fill).result(60)
    release = hold(database)
    before = database.submit(add_call, make_call(0))
    failed = database.submit(fail)
    twice = database.submit(add_call, make_call(0))
    orphan = database.submit(lambda session: session.add(make_model("x", session_id="none")))
    wrong = database.submit(lambda session: session.execute(text("SELECT nothing FROM nowhere")))
    after = database.submit(add_call, make_call(1))
    release.set()
    assert before.result(60).seq_id == 0
    with pytest.raises(ValueError, match="no"):
        failed.result(60)
    with pytest.raises(AlreadyThere, match="Call s:train:0/0 exists"):
        twice.result(60)
    with pytest.raises(IntegrityError):
        orphan.result(60)
    with pytest.raises((ProgrammingError, DatabaseError)):
        wrong.result(60)
    assert after.result(60).seq_id == 1
    assert database.submit(get_tenant, "half").result(60) is None
    assert [key.seq_id for key in database.submit(call_keys, "s:train:0").result(60)] == [0, 1]


def test_rows_of_one_work_are_not_touched_by_the_next(database: Database) -> None:
    def change(session: Session) -> None:
        tenant = session.get(Tenant, "ann")
        assert tenant is not None
        tenant.weight = 5.0
        session.flush()
        raise ValueError

    database.submit(fill).result(60)
    release = hold(database)
    read = database.submit(get_tenant, "ann")
    changed = database.submit(change)
    release.set()
    assert isinstance(changed.exception(60), ValueError)
    tenant = read.result(60)
    assert tenant is not None
    assert tenant.weight == 1.0


@pytest.mark.parametrize(
    "change",
    [
        lambda session: session.add(Tenant(tenant_id="half \ud800 pair")),
        lambda session: session.add(make_call(2**70)),
    ],
)
def test_what_no_column_holds_is_its_senders_fault(database: Database, change: object) -> None:
    database.submit(fill).result(60)
    release = hold(database)
    bad, good = database.submit(change), database.submit(ensure_tenant, "bob")  # type: ignore[arg-type,var-annotated]
    release.set()
    with pytest.raises(UnstorableValue, match="cannot be stored"):
        bad.result(60)
    assert good.result(60).tenant_id == "bob"


def test_postgresql_holds_no_nul(postgres_url: str) -> None:
    database = Database.open(postgres_url)
    with pytest.raises(UnstorableValue, match="NUL"):
        database.submit(lambda session: session.add(Tenant(tenant_id="a\0b"))).result(60)
    with pytest.raises(UnstorableValue):
        database.submit(lambda session: session.add(Tenant(tenant_id="c", quotas={"a\0b": 1}))).result(60)
    database.stop()


def test_a_cancelled_caller_does_not_undo_its_work(database: Database) -> None:
    async def cancel() -> None:
        release = hold(database)
        caller = asyncio.create_task(database.run(lambda session: ensure_tenant(session, "ann")))
        await asyncio.sleep(0.01)
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        release.set()
        assert await database.run(lambda session: get_tenant(session, "ann")) is not None

    asyncio.run(cancel())


def test_closing_finishes_what_was_handed_over(url: str) -> None:
    database = Database.open(url)
    release = hold(database)
    futures: list[Future[Tenant]] = [database.submit(ensure_tenant, f"t{n}") for n in range(5)]
    release.set()
    database.stop()
    database.stop()
    assert [future.result(0).tenant_id for future in futures] == [f"t{n}" for n in range(5)]
    with pytest.raises(DatabaseError, match="closed"):
        database.submit(lambda _session: None)


def test_many_clients_at_once(database: Database) -> None:
    database.submit(fill).result(60)

    async def client(first: int) -> None:
        for seq_id in range(first, first + 5):
            await database.run(lambda session: add_call(session, make_call(seq_id)))  # noqa: B023
            call = await database.run(lambda session: get_call(session, "s:train:0", seq_id))  # noqa: B023
            assert call is not None

    async def all_clients() -> None:
        await asyncio.gather(*(client(5 * n) for n in range(40)))

    asyncio.run(all_clients())
    assert database.submit(lambda session: session.scalar(select(func.count()).select_from(Call))).result(60) == 200
    assert database.submit(lambda session: session.scalar(select(func.count()).select_from(Model))).result(60) == 1


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("mysql://root:secret@host/x", r"mysql://root:\*\*\*@host/x.*does not run on mysql"),
        ("nonsense", "is not a URL"),
        ("sqlite://", "in memory would be lost"),
        ("sqlite:///:memory:", "in memory would be lost"),
        ("postgresql://host:port/x", "is not a URL"),
    ],
)
def test_urls_that_name_no_database(url: str, expected: str) -> None:
    with pytest.raises(DatabaseError, match=expected):
        Database.open(url)


def test_postgresql_is_spoken_through_psycopg(monkeypatch: pytest.MonkeyPatch) -> None:
    assert parse_url("postgresql://u:p@h/d").drivername == "postgresql+psycopg"
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(DatabaseError, match=r"the driver is missing.*plait\[postgres\]"):
        Database.open("postgresql://u:p@h/d")
