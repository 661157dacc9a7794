"""What the functions of all tables share.

`tenant_id=None` stands for the service itself, which sees every tenant's rows; anybody else gets their own rows only, and None
for a stranger's as for one that is not there.
"""

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from sqlalchemy import Select, func, inspect, select
from sqlalchemy.orm import Session

from plait.server.database.errors import AlreadyThere
from plait.server.database.tables import Base

Row = TypeVar("Row", bound=Base)
MAX_IN_LIST = 500
"""Values in one IN (...); databases bound the number of parameters."""


def add(session: Session, row: Row) -> Row:
    """Store a new row; AlreadyThere if there is one with its key."""
    key = inspect(type(row)).primary_key_from_instance(row)
    if None not in key and session.get(type(row), key) is not None:
        raise AlreadyThere(f"{type(row).__name__} {'/'.join(map(str, key))} exists.", "Choose another name.")
    session.add(row)
    session.flush()
    return row


def find(session: Session, table: type[Row], key: Any, tenant_id: str | None) -> Row | None:
    """The row with the primary key, if it is the tenant's."""
    row = session.get(table, key)
    return row if row is not None and tenant_id in (None, getattr(row, "tenant_id", None)) else None


def of_tenant(table: Any, tenant_id: str | None) -> Select[Any]:
    statement = select(table)
    return statement if tenant_id is None else statement.where(table.tenant_id == tenant_id)


def page(session: Session, statement: Select[Any], limit: int, offset: int) -> tuple[list[Any], int]:
    """The rows from `offset` on, at most `limit`, and how many there are in all. The statement is ordered."""
    total = session.scalar(select(func.count()).select_from(statement.order_by(None).subquery()))
    return list(session.scalars(statement.limit(limit).offset(offset))), total or 0


def pieces(values: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Parts short enough for an IN (...)."""
    yield from (tuple(values[start : start + MAX_IN_LIST]) for start in range(0, len(values), MAX_IN_LIST))
