"""One server at a time has a data folder, and one a database. Both end with the process, however it ends.

- The folder's lock is a file in it; so is that of an SQLite database elsewhere, beside the database.
- PostgreSQL's is an advisory lock of a connection that does nothing else. Should the database go away, `renew` takes it again
  once it is back; a server that comes too late for that must end.
"""

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from sqlalchemy import URL, Connection, text
from sqlalchemy.exc import SQLAlchemyError

from plait.config.server import ServerSettings
from plait.server.database.engine import make_engine, parse_url, shown
from plait.server.database.errors import DatabaseError, driver_message
from plait.state.run_lock import RunLock, lock_holder
from plait.types.errors import StateError

LOCK_FILE = "server.lock"
LOCK_KEY = 0x706C61697473
""" "plaits" in ASCII; another than that of `database.schema`."""
_HOLDER = text(
    "SELECT a.application_name FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid "
    "WHERE l.locktype = 'advisory' AND l.granted AND l.classid = :high AND l.objid = :low "
    "AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)


@contextmanager
def server_lock(settings: ServerSettings) -> Iterator["DatabaseLock | None"]:
    """Raises StateError that names the process which has it. Gives the lock of a PostgreSQL database."""
    url = parse_url(settings.sqlalchemy_url)
    with ExitStack() as stack:
        stack.enter_context(_locked(settings.data_folder / LOCK_FILE, f"data_folder {settings.data_folder}"))
        if url.get_backend_name() == "postgresql":
            lock = DatabaseLock(url)
            stack.callback(lock.release)
            yield lock
            return
        database = Path(url.database or "").absolute()
        if database.parent != settings.data_folder.absolute():
            stack.enter_context(_locked(database.with_name(f"{database.name}.{LOCK_FILE}"), f"database {database}"))
        yield None


def _locked(path: Path, what: str) -> RunLock:
    try:
        return RunLock(path)
    except StateError as error:
        if not path.parent.is_dir():
            raise
        holder = lock_holder(path)
        who = f"process {holder}" if holder else "another process"
        raise StateError(f"{what} is in use by a server: {who}.", "Stop that one first, or choose another.") from error


class DatabaseLock:
    def __init__(self, url: URL) -> None:
        self._url = url
        name = f"plait serve, process {os.getpid()} on {socket.gethostname()}"[:63]
        self._engine = make_engine(url.update_query_dict({"application_name": name}))
        self._connection: Connection | None = None
        self._take()

    def _take(self) -> None:
        """Raises StateError if another server has it, DatabaseError if the database cannot be reached."""
        try:
            connection = self._engine.connect().execution_options(isolation_level="AUTOCOMMIT")
            if connection.scalar(text("SELECT pg_try_advisory_lock(:key)"), {"key": LOCK_KEY}):
                self._connection = connection
                return
            parts = {"high": LOCK_KEY >> 32, "low": LOCK_KEY & 0xFFFFFFFF}
            holder = connection.scalar(_HOLDER, parts) or "unknown"
            connection.close()
        except SQLAlchemyError as error:
            raise DatabaseError(
                f"cannot open the database {shown(self._url)}: {driver_message(error)}.",
                "See that database_url names a database that exists, runs and may be written.",
            ) from error
        raise StateError(
            f"the database {shown(self._url)} is in use by another server ({holder}).", "Stop that one first, or choose another."
        )

    def renew(self) -> bool:
        """Whether the lock is held for sure; False while the database is away. Raises StateError if another server has it now."""
        try:
            if self._connection is not None:
                self._connection.execute(text("SELECT 1"))
                return True
            self._take()
        except (SQLAlchemyError, DatabaseError):
            self._drop()
            return False
        return True

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.invalidate()
            connection.close()

    def release(self) -> None:
        self._drop()
        self._engine.dispose()
