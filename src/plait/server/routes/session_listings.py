"""Sessions as resources."""

from typing import Annotated

from fastapi import APIRouter, Query, Response
from sqlalchemy.orm import Session

from plait.server.audit import Action, add
from plait.server.database import models, samplers, sessions
from plait.server.database.tables import ClientSession
from plait.server.errors import NotFound
from plait.server.principal import Principal
from plait.server.routes.dependencies import PrincipalOf, ServiceOf
from plait.server.service import Service
from plait.server.session_search import search
from plait.server.wire.models.base import PageQuery
from plait.server.wire.models.sessions import (
    SessionProjectRequest,
    SessionResponse,
    SessionSearchRequest,
    SessionSearchResponse,
    SessionsResponse,
    TraceExportResponse,
)

router = APIRouter(prefix="/api/v1/sessions", tags=["sessions"])
NO_TRACES = "traces of single sessions are not kept here; /metrics and the server's own traces show where time goes."


@router.get("")
async def list_sessions(query: Annotated[PageQuery, Query()], service: ServiceOf, principal: PrincipalOf) -> SessionsResponse:
    rows, _ = await service.database.run(sessions.list_sessions, principal.tenant_id, query.limit, query.offset)
    return SessionsResponse(sessions=[row.session_id for row in rows])


@router.post("/search")
async def search_sessions(body: SessionSearchRequest, service: ServiceOf, principal: PrincipalOf) -> SessionSearchResponse:
    timeout_s = service.settings.sessions.heartbeat_timeout_s
    return await service.database.run(search, principal.tenant_id, body, timeout_s)


@router.get("/{session_id}")
async def get_session(session_id: str, service: ServiceOf, principal: PrincipalOf) -> SessionResponse:
    row = await _owned(service, session_id, principal)
    run_ids = await service.database.run(models.model_ids_of_session, session_id)
    return SessionResponse(
        training_run_ids=run_ids,
        sampler_ids=await service.database.run(samplers.sampler_ids_of_session, session_id),
        user_metadata=row.user_metadata,
        display_name=row.display_name,
    )


@router.put("/{session_id}/project", status_code=204)
async def assign_project(session_id: str, body: SessionProjectRequest, service: ServiceOf, principal: PrincipalOf) -> Response:
    await service.database.run(_assign_project, principal, session_id, body.project_id)
    return Response(status_code=204)


@router.get("/{session_id}/trace_export")
async def export_trace(session_id: str, service: ServiceOf, principal: PrincipalOf) -> TraceExportResponse:
    await _owned(service, session_id, principal)
    return TraceExportResponse(status="failed", error=NO_TRACES)


async def _owned(service: Service, session_id: str, principal: Principal) -> ClientSession:
    row = await service.database.run(sessions.get_session, session_id, principal.tenant_id)
    if row is None:
        raise NotFound("session", session_id)
    return row


def _assign_project(session: Session, who: Principal, session_id: str, project_id: str) -> None:
    if sessions.set_project(session, session_id, who.tenant_id, project_id) is None:
        raise NotFound("session", session_id)
    add(session, who, Action.PROJECT_ASSIGN, session_id, project_id=project_id)
