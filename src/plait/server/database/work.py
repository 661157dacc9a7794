"""One work: a function of a session, its outcome in the transaction that is running, and who waits for it.

When the transaction is lost, rows that the work added are new again, so that it or its caller can add them once more.
"""

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from sqlalchemy import Connection, event, inspect
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, ProgrammingError
from sqlalchemy.orm import Session, make_transient

from plait.server.database.errors import DatabaseError, UnstorableValue, driver_message


class Work:
    def __init__(self, function: Callable[[Session], Any]) -> None:
        self.future: Future[Any] = Future()
        self._function = function
        self._result: Any = None
        self._error: BaseException | None = None
        self._added: list[Any] = []

    def run(self, connection: Connection) -> None:
        """In a savepoint; TransactionLost if the transaction is beyond rescue."""
        self._result = self._error = None
        try:
            with WorkSession(connection, join_transaction_mode="create_savepoint", expire_on_commit=False) as session:
                self._added = session.added
                self._result = self._function(session)
                session.commit()
        except (DataError, UnicodeEncodeError, OverflowError) as error:
            self._error = UnstorableValue(
                f"a value cannot be stored: {driver_message(error)}.", "Send other text or a smaller number."
            )
            self._error.__cause__ = error
        except (IntegrityError, ProgrammingError) as error:
            self._error = error
        except DBAPIError as error:
            raise TransactionLost(error) from error
        except BaseException as error:  # A work must not end the writer, whatever it raises.
            self._error = error

    def answer(self) -> None:
        """After the commit."""
        if self._error is not None:
            self.future.set_exception(self._error)
        else:
            self.future.set_result(self._result)

    def forget(self) -> None:
        """There was no commit, and the work may run again."""
        for row in self._added:
            make_transient(row)
            column = inspect(type(row)).local_table.autoincrement_column
            if column is not None:
                setattr(row, column.key, None)
        self._added = []

    def fail(self, error: DatabaseError) -> None:
        """There was no commit, and there will be none."""
        self.forget()
        self.future.set_exception(error)


class TransactionLost(Exception):
    def __init__(self, cause: DBAPIError) -> None:
        super().__init__(str(cause))
        self.cause = cause


class WorkSession(Session):
    """Remembers which rows it added."""

    def __init__(self, *values: Any, **more: Any) -> None:
        super().__init__(*values, **more)
        self.added: list[Any] = []


@event.listens_for(WorkSession, "after_flush")
def _remember(session: WorkSession, _context: Any) -> None:
    session.added += session.new
