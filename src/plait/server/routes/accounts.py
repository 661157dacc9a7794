"""The key that asks, the audit log and use. A tenant sees its own only; the audit log needs the role admin."""

import time
from datetime import UTC, date, datetime, timedelta
from typing import Annotated

from fastapi import APIRouter, Query, Response
from sqlalchemy.orm import Session

from plait.server.audit import Action, add, nouns_of
from plait.server.billing import MAX_ROWS, storage, usage_events, window_s
from plait.server.database import audit, checkpoints, tenants, usage
from plait.server.database import tables as t
from plait.server.errors import NotFound, ServiceError
from plait.server.principal import Principal
from plait.server.routes.dependencies import PrincipalOf, ServiceOf
from plait.server.training_runs import as_time
from plait.server.wire.models.accounts import (
    ApiKeyDetails,
    ApiKeyOwner,
    ApiKeyResponse,
    ApiKeyUser,
    AuditEntry,
    AuditQuery,
    AuditResponse,
    CheckpointStorageResponse,
    UsageQuery,
    UsageResponse,
)

router = APIRouter(prefix="/api/v1", tags=["accounts"])
MAX_ENTRIES = 100_000


@router.get("/auth/apikey/me")
async def get_own_key(service: ServiceOf, principal: PrincipalOf) -> ApiKeyResponse:
    row = await service.database.run(tenants.get_key, principal.key_id, principal.tenant_id)
    if row is None:
        raise NotFound("key", principal.key_id)
    owner = ApiKeyDetails(org_details=ApiKeyOwner(name=row.tenant_id), user_details=ApiKeyUser(email=row.tenant_id))
    name = row.label or row.key_id
    return ApiKeyResponse(key_id=int(row.key_id, 16), name=name, note=f"key {row.key_id}, role {row.role}", details=owner)


@router.delete("/auth/apikey/me", status_code=204)
async def revoke_own_key(service: ServiceOf, principal: PrincipalOf) -> Response:
    await service.database.run(_revoke, principal)
    service.authenticator.forget(principal.key_id)
    return Response(status_code=204)


def _revoke(session: Session, who: Principal) -> None:
    tenants.revoke_key(session, who.key_id, who.tenant_id, time.time())
    add(session, who, Action.KEY_REVOKE, who.key_id)


@router.get("/audit")
async def audit_log(query: Annotated[AuditQuery, Query()], service: ServiceOf, principal: PrincipalOf) -> AuditResponse:
    """Of one day (UTC), today's unless another is given; oldest first."""
    principal.require_admin()
    nouns, (from_s, to_s) = nouns_of(query.event_type), _day(query.day)
    rows, total = await service.database.run(audit.list_entries, principal.tenant_id, from_s, to_s, MAX_ENTRIES, 0, nouns)
    if total > MAX_ENTRIES:
        raise ServiceError(f"the day has {total} entries; at most {MAX_ENTRIES} are shown at once.", "Ask by event_type.")
    return AuditResponse(entries=[_entry(row) for row in rows])


def _day(day: date | None) -> tuple[float, float]:
    chosen = day or datetime.now(UTC).date()
    if not 1970 <= chosen.year < 9999:
        raise ServiceError(f"day is {chosen}.", "Give one from 1970-01-01 on.")
    start = datetime(chosen.year, chosen.month, chosen.day, tzinfo=UTC)
    return start.timestamp(), (start + timedelta(days=1)).timestamp()


def _entry(row: t.AuditEntry) -> AuditEntry:
    detail = row.detail or {}
    path = row.object_id if row.action.startswith("checkpoint_") else None
    return AuditEntry(
        timestamp=as_time(row.time_s),
        event=row.action,
        event_details={"object": row.object_id, "tenant": row.tenant_id, "key_id": row.key_id, **detail},
        model_id=path.removeprefix("tinker://").partition("/")[0] if path else None,
        tinker_path=path,
        purpose=detail.get("purpose"),
    )


@router.get("/billing/usage/events")
async def usage_events_of_tenant(
    query: Annotated[UsageQuery, Query()], service: ServiceOf, principal: PrincipalOf
) -> UsageResponse:
    from_s, to_s = window_s(query)
    await service.usage.flush()
    rows, total = await service.database.run(usage.list_usage, principal.tenant_id, from_s, to_s, MAX_ROWS, 0)
    if total > MAX_ROWS:
        raise ServiceError(f"the window has {total} rows; at most {MAX_ROWS} are shown at once.", "Ask for a shorter one.")
    return UsageResponse(data=usage_events(rows))


@router.get("/billing/usage/checkpoints/current")
async def checkpoint_storage(
    service: ServiceOf, principal: PrincipalOf, project_id: str | None = None
) -> CheckpointStorageResponse:
    rows = await service.database.run(checkpoints.stored_by_project, principal.tenant_id)
    return storage(rows, principal.tenant_id, project_id)
