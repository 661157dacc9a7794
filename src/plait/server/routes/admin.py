"""For operators: keys, tenants, the audit log; and for everybody what they have used."""

import time
from typing import Annotated

import msgspec
from fastapi import APIRouter, Query

from plait.server.database import audit, tenants, usage
from plait.server.database.tables import ApiKey, AuditEntry, Tenant
from plait.server.errors import NotFound
from plait.server.routes.dependencies import AdminOf, PrincipalOf, ServiceOf
from plait.server.service import Service
from plait.server.wire.models.administration import (
    AuditPage,
    AuditRow,
    AuditRows,
    ChangeTenantRequest,
    CreateKeyRequest,
    KeyResponse,
    KeysResponse,
    NewKeyResponse,
    Page,
    Quotas,
    TenantPage,
    TenantResponse,
    TenantsResponse,
    UseQuery,
    UseResponse,
    UsesResponse,
)
from plait.server.wire.models.base import Cursor

router = APIRouter(prefix="/v1", tags=["administration"])


@router.post("/keys", status_code=201)
async def create_key(body: CreateKeyRequest, service: ServiceOf, admin: AdminOf) -> NewKeyResponse:
    row, key = await service.administration.create_key(body, admin)
    return NewKeyResponse(key=key, **_key(row).model_dump())


@router.get("/keys")
async def list_keys(query: Annotated[TenantPage, Query()], service: ServiceOf, admin: AdminOf) -> KeysResponse:
    """Oldest first, revoked ones too."""
    rows, total = await service.database.run(tenants.list_keys, query.tenant_id, query.limit, query.offset)
    return KeysResponse(keys=[_key(row) for row in rows], cursor=_cursor(query, total))


@router.delete("/keys/{key_id}")
async def revoke_key(key_id: str, service: ServiceOf, admin: AdminOf) -> KeyResponse:
    """From now on it opens nothing."""
    return _key(await service.administration.revoke_key(key_id, admin))


@router.get("/tenants")
async def list_tenants(query: Annotated[Page, Query()], service: ServiceOf, admin: AdminOf) -> TenantsResponse:
    rows, total = await service.database.run(tenants.list_tenants, query.limit, query.offset)
    stored = await service.administration.stored_bytes([row.tenant_id for row in rows])
    return TenantsResponse(
        tenants=[_tenant(service, row, stored[row.tenant_id]) for row in rows], cursor=_cursor(query, total)
    )  # fmt: skip


@router.get("/tenants/{tenant_id}")
async def show_tenant(tenant_id: str, service: ServiceOf, admin: AdminOf) -> TenantResponse:
    row = await service.database.run(tenants.get_tenant, tenant_id)
    if row is None:
        raise NotFound("tenant", tenant_id, "`plait tenants list` shows them.")
    stored = await service.administration.stored_bytes([tenant_id])
    return _tenant(service, row, stored[tenant_id])


@router.patch("/tenants/{tenant_id}")
async def change_tenant(tenant_id: str, body: ChangeTenantRequest, service: ServiceOf, admin: AdminOf) -> TenantResponse:
    """Weight and quotas; holds at once."""
    row = await service.administration.change_tenant(tenant_id, body, admin)
    service.apply_tenant(tenant_id, row.weight, row.quotas)
    stored = await service.administration.stored_bytes([tenant_id])
    return _tenant(service, row, stored[tenant_id])


@router.get("/usage")
async def use(query: Annotated[UseQuery, Query()], service: ServiceOf, principal: PrincipalOf) -> UsesResponse:
    """By tenant and model: one's own; with an admin key everybody's."""
    if not principal.is_admin and query.tenant_id not in (None, principal.tenant_id):
        raise NotFound("tenant", query.tenant_id or "")
    tenant_id = query.tenant_id if principal.is_admin else principal.tenant_id
    await service.usage.flush()
    totals = await service.database.run(usage.total_usage, tenant_id, query.from_s, query.to_s or _next_hour_s())
    rows = [
        UseResponse(tenant_id=tenant, base_model=model, **msgspec.structs.asdict(amount))
        for (tenant, model), amount in totals.items()
    ]
    names = sorted({row.tenant_id for row in rows} | ({tenant_id} if tenant_id else set()))
    return UsesResponse(usage=rows, stored_bytes=await service.administration.stored_bytes(names))


@router.get("/audit")
async def audit_log(query: Annotated[AuditPage, Query()], service: ServiceOf, admin: AdminOf) -> AuditRows:
    """Oldest first."""
    to_s = query.to_s or time.time() + 1
    rows, total = await service.database.run(
        audit.list_entries, query.tenant_id, query.from_s, to_s, query.limit, query.offset
    )  # fmt: skip
    return AuditRows(entries=[_audit(row) for row in rows], cursor=_cursor(query, total))


def _next_hour_s() -> float:
    return time.time() + 3600


def _cursor(query: Page, total: int) -> Cursor:
    return Cursor(offset=query.offset, limit=query.limit, total_count=total)


def _key(row: ApiKey) -> KeyResponse:
    return KeyResponse(
        key_id=row.key_id, tenant_id=row.tenant_id, role=row.role, label=row.label, strict=row.strict,
        created_s=row.created_s, revoked_s=row.revoked_s,
    )  # fmt: skip


def _tenant(service: Service, row: Tenant, stored_bytes: int) -> TenantResponse:
    limits = msgspec.structs.asdict(service.administration.limits(row.quotas))
    return TenantResponse(
        tenant_id=row.tenant_id, weight=row.weight, quotas=Quotas(**limits), has_own_quotas=row.quotas is not None,
        stored_bytes=stored_bytes,
    )  # fmt: skip


def _audit(row: AuditEntry) -> AuditRow:
    return AuditRow(
        time_s=row.time_s, tenant_id=row.tenant_id, action=row.action, key_id=row.key_id, object_id=row.object_id, detail=row.detail
    )  # fmt: skip
