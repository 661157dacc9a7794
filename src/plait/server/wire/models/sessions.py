"""Sessions of clients."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import AwareDatetime, Field

from plait.server.wire.models.base import AnyMetadata, Identifier, Metadata, Request, Response

FinishType = Literal["success", "errored", "interrupted"]


class CreateSessionRequest(Request):
    tags: Annotated[list[str], Field(max_length=1000)] = []
    user_metadata: AnyMetadata | None = None
    sdk_version: str = ""
    project_id: str | None = None
    display_name: str | None = None


class CreateSessionResponse(Response):
    session_id: str
    info_message: str | None = None
    """Messages are logged by the client."""
    warning_message: str | None = None
    error_message: str | None = None
    type: Literal["create_session"] = "create_session"


class SessionHeartbeatRequest(Request):
    session_id: Identifier


class SessionHeartbeatResponse(Response):
    type: Literal["session_heartbeat"] = "session_heartbeat"


class FinishReason(Request):
    type: FinishType


class FinishSessionRequest(Request):
    reason: FinishReason
    detail: str | None = None


class SessionResponse(Response):
    training_run_ids: list[str]
    sampler_ids: list[str]
    user_metadata: Metadata | None = None
    display_name: str | None = None


class SessionsResponse(Response):
    sessions: list[str]
    """Their ids."""


class SessionProjectRequest(Request):
    project_id: Identifier


class SessionOwner(Request):
    type: Literal["own", "accessible", "user"] = "own"
    owner_urns: Annotated[list[str], Field(max_length=10)] = []


class SessionStatusQuery(Request):
    type: Literal["active", "cancelled", "failed", "client_finished"]
    reasons: Annotated[list[FinishType], Field(min_length=1)] | None = None


class SessionSearchCursor(Request):
    """Where the next page starts; goes out in a response and comes back in a request."""

    last_created_at: AwareDatetime
    last_session_id: str


class SessionSearchRequest(Request):
    session_id: str | None = None
    project_ids: list[str] | None = None
    user_metadata: Metadata = {}
    """Every pair must hold."""
    display_name: Annotated[str, Field(min_length=1)] | None = None
    owner: SessionOwner = SessionOwner()
    statuses: Annotated[list[SessionStatusQuery], Field(min_length=1)] | None = None
    """Any of them."""
    limit: Annotated[int, Field(ge=1, le=200)] = 50
    cursor: SessionSearchCursor | None = None


class SessionActive(Response):
    type: Literal["active"] = "active"


class SessionCancelled(Response):
    """Ended from outside, or its heartbeats were lost."""

    type: Literal["cancelled"] = "cancelled"
    detail: str | None = None


class SessionFinished(Response):
    type: Literal["client_finished"] = "client_finished"
    reason: FinishReason
    detail: str | None = None


SessionStatus = Annotated[SessionActive | SessionCancelled | SessionFinished, Field(discriminator="type")]


class SessionSummary(Response):
    session_id: str
    created_at: datetime
    owner: str
    project_id: str
    status: SessionStatus | None = None
    checkpoints_count: int = 0
    display_name: str | None = None
    user_metadata: Metadata | None = None
    checkpoint_storage_bytes: int | None = None


class SessionSearchResponse(Response):
    sessions: list[SessionSummary]
    next_cursor: SessionSearchCursor | None = None


class TraceExportResponse(Response):
    status: Literal["pending", "ready", "failed"]
    url: str | None = None
    error: str | None = None
