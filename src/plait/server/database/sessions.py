"""Sessions of clients."""

from collections.abc import Collection, Mapping, Sequence
from typing import Literal

from sqlalchemy import ColumnElement, Select, and_, func, or_, select, type_coerce, update
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Session

from plait.server.database.rows import add, find, of_tenant, page
from plait.server.database.tables import Checkpoint, ClientSession, Model

SessionState = Literal["live", "cancelled", "success", "errored", "interrupted"]
"""The last three: as its client said at its end."""
LIVE: SessionState = "live"
CANCELLED: SessionState = "cancelled"


def add_session(session: Session, row: ClientSession) -> ClientSession:
    return add(session, row)


def get_session(session: Session, session_id: str, tenant_id: str | None) -> ClientSession | None:
    return find(session, ClientSession, session_id, tenant_id)


def record_heartbeats(session: Session, heartbeat_s: Mapping[str, float]) -> None:
    """The latest sign of life of each session id; of ended sessions none."""
    for session_id, time_s in heartbeat_s.items():
        session.execute(
            update(ClientSession)
            .where(ClientSession.session_id == session_id, ClientSession.ended_s.is_(None), ClientSession.heartbeat_s < time_s)
            .values(heartbeat_s=time_s)
        )


def end_session(session: Session, session_id: str, reason: str, now_s: float) -> ClientSession | None:
    """The first end counts."""
    row = session.get(ClientSession, session_id)
    if row is not None and row.ended_s is None:
        row.ended_s, row.end_reason = now_s, reason
    return row


def set_project(session: Session, session_id: str, tenant_id: str | None, project_id: str | None) -> ClientSession | None:
    row = find(session, ClientSession, session_id, tenant_id)
    if row is not None:
        row.project_id = project_id
    return row


def open_sessions(session: Session) -> list[ClientSession]:
    """All that have not ended, for a restart."""
    return list(session.scalars(select(ClientSession).where(ClientSession.ended_s.is_(None)).order_by(ClientSession.created_s)))


def list_sessions(session: Session, tenant_id: str | None, limit: int, offset: int) -> tuple[list[ClientSession], int]:
    """Newest first."""
    return page(session, _newest_first(of_tenant(ClientSession, tenant_id)), limit, offset)


def search_sessions(
    session: Session,
    tenant_id: str | None,
    *,
    session_id: str | None = None,
    display_name: str | None = None,
    project_ids: Sequence[str] | None = None,
    user_metadata: Mapping[str, str] | None = None,
    states: Collection[SessionState] | None = None,
    alive_since_s: float = 0.0,
    after: tuple[float, str] | None = None,
    limit: int = 50,
) -> list[ClientSession]:
    """Newest first, beginning after the session `after` = (created_s, session_id).

    `session_id` or every word of `display_name` (in any case) must match, and each other condition that is given. Live is what
    has not ended and gave a sign of life since `alive_since_s`; cancelled, what did not end by its client.
    """
    statement = _newest_first(of_tenant(ClientSession, tenant_id))
    either = [ClientSession.session_id == session_id] if session_id is not None else []
    if display_name is not None:
        words = [func.lower(ClientSession.display_name).contains(word, autoescape=True) for word in display_name.lower().split()]
        either.append(and_(ClientSession.display_name.is_not(None), *words))
    if either:
        statement = statement.where(or_(*either))
    if project_ids is not None:
        statement = statement.where(ClientSession.project_id.in_(project_ids))
    for key, value in (user_metadata or {}).items():
        statement = statement.where(_has_metadata(session, key, value))
    if states is not None:
        statement = statement.where(_is_in(states, alive_since_s))
    if after is not None:
        created_s, last_id = after
        older = and_(ClientSession.created_s == created_s, ClientSession.session_id < last_id)
        statement = statement.where(or_(ClientSession.created_s < created_s, older))
    return list(session.scalars(statement.limit(limit)))


def storage_of(session: Session, session_id: str) -> tuple[int, int]:
    """Checkpoints of the session's models: how many, and their bytes."""
    statement = (
        select(func.count(), func.coalesce(func.sum(Checkpoint.size_bytes), 0))
        .join(Model, Model.model_id == Checkpoint.model_id)
        .where(Model.session_id == session_id)
    )
    count, size_bytes = session.execute(statement).one()
    return count, int(size_bytes)


def _is_in(states: Collection[SessionState], alive_since_s: float) -> ColumnElement[bool]:
    """In any of them."""
    has_ended, reasons = ClientSession.ended_s.is_not(None), [state for state in states if state not in (LIVE, CANCELLED)]
    conditions = [and_(has_ended, ClientSession.end_reason.in_(reasons))]
    if LIVE in states:
        conditions.append(and_(~has_ended, ClientSession.heartbeat_s >= alive_since_s))
    if CANCELLED in states:
        conditions.append(and_(has_ended, ClientSession.end_reason.not_in(("success", "errored", "interrupted"))))
    return or_(*conditions)


def _has_metadata(session: Session, key: str, value: str) -> ColumnElement[bool]:
    if session.get_bind().dialect.name == "postgresql":
        return type_coerce(ClientSession.user_metadata, JSONB).contains({key: value})
    # Not by a JSON path: SQLite's cannot express every key.
    entry = func.json_each(ClientSession.user_metadata).table_valued("key", "value")
    return select(entry.c.key).where(entry.c.key == key, entry.c.value == value).exists()


def _newest_first(statement: Select[ClientSession]) -> Select[ClientSession]:
    return statement.order_by(ClientSession.created_s.desc(), ClientSession.session_id.desc())
