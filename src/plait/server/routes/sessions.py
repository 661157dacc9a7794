"""Sessions: opened, kept alive, finished."""

from fastapi import APIRouter, Response

from plait.server.audit import Action
from plait.server.routes.dependencies import PrincipalOf, ServiceOf
from plait.server.wire.models.sessions import (
    CreateSessionRequest,
    CreateSessionResponse,
    FinishSessionRequest,
    SessionHeartbeatRequest,
    SessionHeartbeatResponse,
)

router = APIRouter(prefix="/api/v1", tags=["sessions"])


@router.post("/create_session")
async def create_session(body: CreateSessionRequest, service: ServiceOf, principal: PrincipalOf) -> CreateSessionResponse:
    session_id = await service.sessions.create(principal, body)
    await service.audit.tell(principal, Action.SESSION_CREATE, session_id)
    return CreateSessionResponse(session_id=session_id, warning_message=service.bases.aliases_warning)


@router.post("/session_heartbeat")
async def session_heartbeat(body: SessionHeartbeatRequest, service: ServiceOf, principal: PrincipalOf) -> SessionHeartbeatResponse:
    service.sessions.heartbeat(body.session_id, principal.tenant_id)
    return SessionHeartbeatResponse()


@router.post("/sessions/{session_id}/finish", status_code=204)
async def finish_session(session_id: str, body: FinishSessionRequest, service: ServiceOf, principal: PrincipalOf) -> Response:
    await service.sessions.finish(session_id, principal.tenant_id, body.reason.type)
    await service.audit.tell(principal, Action.SESSION_FINISH, session_id, reason=body.reason.type)
    return Response(status_code=204)
