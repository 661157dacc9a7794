"""One writer, group commit.

- A work is a function of a session. It must have no effect but through that session: it may run twice.
- Works run one after another in one thread. Those that arrive while a transaction is being written share the next one.
- A work that raises fails alone; nothing of it is stored.
- A work's answer comes after the commit. What was answered survives the end of the process and of the machine.
- When the transaction itself fails (disk full, file locked, server gone), its works get a DatabaseError and nothing of them is
  stored; later works are tried anew. Only of a PostgreSQL connection lost in the very commit is the outcome unknown.
"""

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import Concatenate, ParamSpec, TypeVar

from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from plait.server.database.engine import make_engine, parse_url, shown
from plait.server.database.errors import DatabaseError, driver_message
from plait.server.database.schema import upgrade
from plait.server.database.work import TransactionLost, Work
from plait.types.errors import PlaitError

T = TypeVar("T")
P = ParamSpec("P")
MAX_GROUP = 256
"""Most works in one transaction; bounds how long one waits for the others."""
REMEDY = "Nothing of this was stored; what was acknowledged before is safe. Make room, or mend the database, and try again."


class Database:
    """Made by `open`."""

    def __init__(self, url: str) -> None:
        """For a database that has the schema already; `open` sees to that."""
        self._url = parse_url(url)
        self._engine = make_engine(self._url)
        self._waiting: SimpleQueue[Work | None] = SimpleQueue()
        self._closing = threading.Lock()
        self._is_closed = False
        self._thread = threading.Thread(target=self._write, name="plait-database", daemon=True)

    @classmethod
    def open(cls, url: str) -> "Database":
        """Connect, bring the schema up to date, start the writer. DatabaseError if that cannot be."""
        database = cls(url)
        try:
            upgrade(database._engine)
        except SQLAlchemyError as error:
            database._engine.dispose()
            raise DatabaseError(
                f"cannot open the database {shown(database._url)}: {driver_message(error)}.", _OPEN_REMEDY
            ) from error
        except PlaitError:
            database._engine.dispose()
            raise
        database._thread.start()
        return database

    @property
    def num_waiting(self) -> int:
        """Works that no transaction has taken yet."""
        return self._waiting.qsize()

    async def run(self, function: Callable[Concatenate[Session, P], T], *values: P.args, **more: P.kwargs) -> T:
        """What `function(session, *values, **more)` returns, once it is stored; or its error.

        A caller that is cancelled does not undo its work.
        """
        return await asyncio.shield(asyncio.wrap_future(self.submit(function, *values, **more)))

    def submit(self, function: Callable[Concatenate[Session, P], T], *values: P.args, **more: P.kwargs) -> "Future[T]":
        """The same without asyncio."""
        item = Work(lambda session: function(session, *values, **more))
        with self._closing:
            if self._is_closed:
                raise DatabaseError("the database is closed.", "Start the server again.")
            self._waiting.put(item)
        return item.future

    async def close(self) -> None:
        """Finish the works that were handed over, then end."""
        await asyncio.to_thread(self.stop)

    def stop(self) -> None:
        """The same without asyncio."""
        with self._closing:
            if not self._is_closed:
                self._is_closed = True
                self._waiting.put(None)
        self._thread.join()
        self._engine.dispose()

    def _write(self) -> None:
        is_open = True
        while is_open:
            group = self._next_group()
            works = [work for work in group if work is not None and work.future.set_running_or_notify_cancel()]
            is_open = None not in group
            if works:
                self._run_group(works)

    def _next_group(self) -> list[Work | None]:
        group = [self._waiting.get()]
        while len(group) < MAX_GROUP:
            try:
                group.append(self._waiting.get_nowait())
            except Empty:
                break
        return group

    def _run_group(self, works: Sequence[Work]) -> None:
        try:
            with self._engine.begin() as connection:
                for work in works:
                    work.run(connection)
        except TransactionLost as lost:
            self._run_apart(works, lost)
        except Exception as error:  # Whatever it was, nobody may wait for ever.
            for work in works:
                work.fail(self._error(error))
        else:
            for work in works:
                work.answer()

    def _run_apart(self, works: Sequence[Work], lost: TransactionLost) -> None:
        """None of them is stored. Each gets a transaction of its own, so that who is to blame fails alone."""
        if len(works) == 1:
            works[0].fail(self._error(lost.cause))
            return
        for work in works:
            work.forget()
            self._run_group([work])

    def _error(self, error: BaseException) -> DatabaseError:
        failure = DatabaseError(f"cannot write the database {shown(self._url)}: {driver_message(error)}.", REMEDY)
        failure.__cause__ = error
        return failure


_OPEN_REMEDY = "See that database_url names a database that exists, runs and may be written."
