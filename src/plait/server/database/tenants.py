"""Tenants and their keys."""

from sqlalchemy import select
from sqlalchemy.orm import Session

from plait.server.database.rows import add, find, of_tenant, page
from plait.server.database.tables import ApiKey, Tenant


def add_tenant(session: Session, tenant: Tenant) -> Tenant:
    return add(session, tenant)


def get_tenant(session: Session, tenant_id: str) -> Tenant | None:
    return session.get(Tenant, tenant_id)


def ensure_tenant(session: Session, tenant_id: str) -> Tenant:
    """The tenant; made with defaults if there is none."""
    return session.get(Tenant, tenant_id) or add(session, Tenant(tenant_id=tenant_id))


def change_tenant(session: Session, tenant_id: str, weight: float, quotas: dict[str, int] | None) -> Tenant | None:
    tenant = session.get(Tenant, tenant_id)
    if tenant is not None:
        tenant.weight, tenant.quotas = weight, quotas
    return tenant


def list_tenants(session: Session, limit: int, offset: int) -> tuple[list[Tenant], int]:
    return page(session, select(Tenant).order_by(Tenant.tenant_id), limit, offset)


def add_key(session: Session, key: ApiKey) -> ApiKey:
    """The key's tenant must exist."""
    return add(session, key)


def get_key(session: Session, key_id: str, tenant_id: str | None = None) -> ApiKey | None:
    """Revoked ones too."""
    return find(session, ApiKey, key_id, tenant_id)


def revoke_key(session: Session, key_id: str, tenant_id: str | None, now_s: float) -> ApiKey | None:
    """From now on it opens nothing; a second time changes nothing."""
    key = find(session, ApiKey, key_id, tenant_id)
    if key is not None and key.revoked_s is None:
        key.revoked_s = now_s
    return key


def list_keys(session: Session, tenant_id: str | None, limit: int, offset: int) -> tuple[list[ApiKey], int]:
    """Oldest first, revoked ones too."""
    return page(session, of_tenant(ApiKey, tenant_id).order_by(ApiKey.created_s, ApiKey.key_id), limit, offset)


def has_keys(session: Session) -> bool:
    """Whether any key opens anything."""
    return session.scalar(select(ApiKey.key_id).where(ApiKey.revoked_s.is_(None)).limit(1)) is not None
