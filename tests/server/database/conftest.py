"""Each test of the database runs on SQLite and on a real PostgreSQL server, which the whole session shares."""

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from plait.server.database.database import Database
from tests.server.database.rows import fill


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """URL of a server's own database. It listens on a socket in a short folder of its own, as sockets' paths must be short."""
    with tempfile.TemporaryDirectory(prefix="plait-") as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", folder)  # pgserver keeps a lock there, from its import on.
        import pgserver

        server = pgserver.get_server(Path(folder) / "pg", cleanup_mode="delete")
        yield server.get_uri()
        server.cleanup()


@pytest.fixture
def postgres_url(postgres: str) -> Iterator[str]:
    """A new, empty database."""
    name = f"test_{os.urandom(6).hex()}"
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    yield postgres.replace("/postgres?", f"/{name}?")
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/plait.db" if request.param == "sqlite" else request.getfixturevalue("postgres_url")


@pytest.fixture
def database(url: str) -> Iterator[Database]:
    opened = Database.open(url)
    yield opened
    opened.stop()


@pytest.fixture
def run(database: Database) -> Callable[..., Any]:
    """Runs a function in a work of its own; there are two tenants, each with a session and a model."""
    database.submit(fill).result(60)
    database.submit(fill, tenant_id="bob", session_id="b").result(60)
    return lambda function, *values, **more: database.submit(function, *values, **more).result(60)
