"""Connections: SQLite tuned so that a commit survives a power cut, PostgreSQL as it comes."""

from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError

from plait.server.database.errors import DatabaseError

BUSY_TIMEOUT_S = 10.0
"""How long to wait for another process, such as `plait keys`, that writes to the same SQLite file."""
CONNECT_TIMEOUT_S = 10
PRAGMAS = ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON", f"busy_timeout = {int(BUSY_TIMEOUT_S * 1000)}")
"""FULL: in WAL mode a NORMAL commit may be lost in a power cut."""


def parse_url(url: str) -> URL:
    """A URL of a database that Plait runs on; otherwise DatabaseError."""
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError) as error:
        raise DatabaseError("database_url is not a URL.", _ALLOWED) from error
    match parsed.get_backend_name():
        case "postgresql":
            return parsed.set(drivername="postgresql+psycopg")
        case "sqlite" if parsed.database and parsed.database != ":memory:" and not parsed.query:
            return parsed.set(drivername="sqlite")
        case "sqlite":
            raise DatabaseError(f"database_url = {shown(parsed)!r}: a database in memory would be lost.", _ALLOWED)
        case name:
            raise DatabaseError(f"database_url = {shown(parsed)!r}: Plait does not run on {name}.", _ALLOWED)


def make_engine(url: URL) -> Engine:
    """Connects when first used."""
    try:
        if url.get_backend_name() == "sqlite":
            return _listen_sqlite(create_engine(url, connect_args={"timeout": BUSY_TIMEOUT_S}))
        return create_engine(url, pool_pre_ping=True, connect_args={"connect_timeout": CONNECT_TIMEOUT_S})
    except (ModuleNotFoundError, NoSuchModuleError) as error:
        raise DatabaseError(
            f"database_url = {shown(url)!r}: the driver is missing.", "Run: pip install 'plait[postgres]'"
        ) from error


def shown(url: URL) -> str:
    """Without the password."""
    return url.render_as_string(hide_password=True)


def _listen_sqlite(engine: Engine) -> Engine:
    @event.listens_for(engine, "connect")
    def prepare(connection: Any, _record: Any) -> None:
        connection.isolation_level = None  # The driver would begin late and commit before DDL; `begin` below does it right.
        for pragma in PRAGMAS:
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")  # A transaction that reads first could not always write later.

    return engine


_ALLOWED = 'Give "sqlite:////path/to/file" or "postgresql://user:password@host/name".'
