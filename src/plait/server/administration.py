"""What operators do: keys and tenants. Each change and its audit entry are stored together, and hold at once."""

import time
from typing import Any

import msgspec
from sqlalchemy.orm import Session

from plait.operations.quotas import QuotaLimits, Quotas
from plait.server.audit import Action, add
from plait.server.database import checkpoints, tenants
from plait.server.database.database import Database
from plait.server.database.tables import ApiKey, Tenant
from plait.server.errors import NotFound
from plait.server.keys import digest, make_key
from plait.server.principal import Authenticator, Principal
from plait.server.wire.models.administration import ChangeTenantRequest, CreateKeyRequest

FROM_COMMAND_LINE = "command line"
"""In place of a key's id, where `plait keys` made the change on the database itself."""


def new_key(session: Session, request: CreateKeyRequest, who: Principal) -> tuple[ApiKey, str]:
    """The key's row, and the key itself, which nobody can read again later."""
    key_id, key = make_key()
    tenant_id = request.tenant_id or who.tenant_id
    tenants.ensure_tenant(session, tenant_id)
    row = ApiKey(
        key_id=key_id, tenant_id=tenant_id, role=request.role, secret_digest=digest(key), label=request.label,
        created_s=time.time(), strict=request.strict,
    )  # fmt: skip
    tenants.add_key(session, row)
    add(session, who, Action.KEY_CREATE, key_id, of_tenant=tenant_id, role=request.role)
    return row, key


def revoke(session: Session, key_id: str, who: Principal) -> ApiKey:
    """Again: nothing. Raises NotFound."""
    row = tenants.get_key(session, key_id)
    if row is None:
        raise NotFound("key", key_id, "`plait keys list` shows them.")
    if row.revoked_s is None:
        tenants.revoke_key(session, key_id, None, time.time())
        add(session, who, Action.KEY_REVOKE, key_id, of_tenant=row.tenant_id)
    return row


class Administration:
    def __init__(self, database: Database, authenticator: Authenticator, quotas: Quotas) -> None:
        self._database, self._authenticator, self._quotas = database, authenticator, quotas

    async def create_key(self, request: CreateKeyRequest, who: Principal) -> tuple[ApiKey, str]:
        return await self._database.run(new_key, request, who)

    async def revoke_key(self, key_id: str, who: Principal) -> ApiKey:
        row = await self._database.run(revoke, key_id, who)
        self._authenticator.forget(key_id)
        return row

    async def change_tenant(self, tenant_id: str, request: ChangeTenantRequest, who: Principal) -> Tenant:
        """Stored; `Service.apply_tenant` makes it hold. Raises NotFound."""

        def work(session: Session) -> Tenant:
            row = tenants.get_tenant(session, tenant_id)
            if row is None:
                raise NotFound("tenant", tenant_id, "`plait tenants list` shows them.")
            weight = row.weight if request.weight is None else request.weight
            quotas = self._changed_quotas(row.quotas, request)
            tenants.change_tenant(session, tenant_id, weight, quotas)
            add(session, who, Action.TENANT_CHANGE, tenant_id, weight=weight, quotas=quotas)
            return row

        return await self._database.run(work)

    def _changed_quotas(self, stored: dict[str, Any] | None, request: ChangeTenantRequest) -> dict[str, Any] | None:
        """None: the server's own."""
        if "quotas" not in request.model_fields_set:
            return stored
        if request.quotas is None:
            return None
        return {**msgspec.structs.asdict(self.limits(stored)), **request.quotas.model_dump(exclude_unset=True)}

    def limits(self, stored: dict[str, Any] | None) -> QuotaLimits:
        """In force for a tenant whose row has these."""
        return self._quotas.default if stored is None else QuotaLimits(**stored)

    async def stored_bytes(self, tenant_ids: list[str]) -> dict[str, int]:
        return await self._database.run(
            lambda session: {tenant_id: checkpoints.stored_bytes(session, tenant_id) for tenant_id in tenant_ids}
        )
