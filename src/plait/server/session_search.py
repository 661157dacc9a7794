"""Searching a tenant's sessions, in the words of the Tinker API."""

import time
from collections.abc import Sequence
from typing import get_args

from sqlalchemy.orm import Session

from plait.server.database import sessions
from plait.server.database.sessions import CANCELLED, LIVE, SessionState
from plait.server.database.tables import ClientSession
from plait.server.training_runs import as_time
from plait.server.wire.models.sessions import (
    FinishReason,
    FinishType,
    SessionActive,
    SessionCancelled,
    SessionFinished,
    SessionSearchCursor,
    SessionSearchRequest,
    SessionSearchResponse,
    SessionStatus,
    SessionStatusQuery,
    SessionSummary,
)

FINISH_TYPES: tuple[FinishType, ...] = get_args(FinishType)


def search(session: Session, tenant_id: str, request: SessionSearchRequest, heartbeat_timeout_s: float) -> SessionSearchResponse:
    """One page, newest first. Owners other than the tenant have no sessions that it may see."""
    owner, alive_since_s = request.owner, time.time() - heartbeat_timeout_s
    if owner.type == "user" and tenant_id not in owner.owner_urns:
        return SessionSearchResponse(sessions=[])
    rows = sessions.search_sessions(
        session, tenant_id, session_id=request.session_id, display_name=request.display_name, project_ids=request.project_ids,
        user_metadata=request.user_metadata, states=_states(request.statuses), alive_since_s=alive_since_s,
        after=_after(session, tenant_id, request.cursor), limit=request.limit + 1,
    )  # fmt: skip
    shown = rows[: request.limit]
    last = shown[-1] if len(rows) > request.limit else None
    cursor = last and SessionSearchCursor(last_created_at=as_time(last.created_s), last_session_id=last.session_id)
    return SessionSearchResponse(sessions=[_summary(session, row, alive_since_s) for row in shown], next_cursor=cursor)


def _after(session: Session, tenant_id: str, cursor: SessionSearchCursor | None) -> tuple[float, str] | None:
    """The time as stored, if it can be had: a cursor's is rounded to microseconds."""
    if cursor is None:
        return None
    row = sessions.get_session(session, cursor.last_session_id, tenant_id)
    return (row.created_s if row is not None else cursor.last_created_at.timestamp()), cursor.last_session_id


def _states(queries: Sequence[SessionStatusQuery] | None) -> set[SessionState] | None:
    if queries is None:
        return None
    states: set[SessionState] = set()
    for query in queries:
        match query.type:
            case "active":
                states.add(LIVE)
            case "cancelled":
                states.add(CANCELLED)
            case "client_finished":
                states.update(query.reasons or FINISH_TYPES)
    return states


def _summary(session: Session, row: ClientSession, alive_since_s: float) -> SessionSummary:
    num_checkpoints, size_bytes = sessions.storage_of(session, row.session_id)
    return SessionSummary(
        session_id=row.session_id,
        created_at=as_time(row.created_s),
        owner=row.tenant_id,
        project_id=row.project_id or "",
        status=_status(row, alive_since_s),
        checkpoints_count=num_checkpoints,
        display_name=row.display_name,
        user_metadata=row.user_metadata,
        checkpoint_storage_bytes=size_bytes,
    )


def _status(row: ClientSession, alive_since_s: float) -> SessionStatus | None:
    """None: it has not ended, and its heartbeats stopped."""
    if row.ended_s is None:
        return SessionActive() if row.heartbeat_s >= alive_since_s else None
    for finish_type in FINISH_TYPES:
        if row.end_reason == finish_type:
            return SessionFinished(reason=FinishReason(type=finish_type))
    return SessionCancelled(detail=row.end_reason)
