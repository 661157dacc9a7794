"""What every route asks for: the service, and who asks."""

from typing import Annotated

from fastapi import Depends, Request
from fastapi.security import APIKeyHeader, HTTPBearer
from fastapi.security.http import HTTPAuthorizationCredentials

from plait.server.logs import note
from plait.server.principal import Principal
from plait.server.service import Service

_header = APIKeyHeader(name="X-API-Key", auto_error=False)
_bearer = HTTPBearer(auto_error=False)


async def service_of(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


async def principal_of(
    request: Request,
    key: Annotated[str | None, Depends(_header)] = None,
    bearer: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)] = None,
) -> Principal:
    """Raises Unauthorized."""
    service = await service_of(request)
    principal = await service.authenticator.principal(key or (bearer.credentials if bearer else None))
    note(tenant=principal.tenant_id, key_id=principal.key_id)
    return principal


ServiceOf = Annotated[Service, Depends(service_of)]
PrincipalOf = Annotated[Principal, Depends(principal_of)]


async def principal_if_any(
    request: Request,
    key: Annotated[str | None, Depends(_header)] = None,
    bearer: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)] = None,
) -> Principal | None:
    """None without a key. Raises Unauthorized if there is one that opens nothing."""
    return await principal_of(request, key, bearer) if key or bearer else None


async def admin_of(principal: Annotated[Principal, Depends(principal_of)]) -> Principal:
    """Raises Unauthorized, or Forbidden."""
    principal.require_admin()
    return principal


PrincipalIfAny = Annotated[Principal | None, Depends(principal_if_any)]
AdminOf = Annotated[Principal, Depends(admin_of)]
