"""What can go wrong with the database, apart from errors of the works themselves."""

from sqlalchemy.exc import DBAPIError

from plait.types.errors import PlaitError


class DatabaseError(PlaitError):
    """The database cannot be reached, read or written; nothing of what failed was stored."""


class SchemaError(DatabaseError):
    """The database's schema is not one that this Plait can use."""


class UnstorableValue(DatabaseError):
    """A value that no column holds: text with NUL or half a surrogate pair, or a number beyond 64 bits. Its sender is at fault."""


class AlreadyThere(DatabaseError):
    """A row with this key exists."""


def driver_message(error: BaseException) -> str:
    """The driver's own words, without the statement and its values."""
    return str(error.orig if isinstance(error, DBAPIError) else error).strip().rstrip(".")
