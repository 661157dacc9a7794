"""Data for managed tasks: JSON Lines, sent as it is, used as `upload:NAME`."""

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from fastapi import Path as PathParameter

from plait.server.audit import Action
from plait.server.managed.views import UploadList, UploadView, upload_view
from plait.server.routes.dependencies import PrincipalOf, ServiceOf
from plait.server.routes.tasks import Limit, Offset

router = APIRouter(prefix="/v1/uploads", tags=["uploads"])
NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$"
BODY = {"requestBody": {"content": {"application/jsonl": {"schema": {"type": "string", "format": "binary"}}}, "required": True}}


@router.post("", status_code=201, openapi_extra=BODY)
async def upload(
    request: Request, service: ServiceOf, principal: PrincipalOf, name: Annotated[str, Query(pattern=NAME_PATTERN)]
) -> UploadView:
    row = await service.managed.uploads.add(principal.tenant_id, name, request.stream())
    await service.audit.tell(principal, Action.UPLOAD_CREATE, name, size_bytes=row.size_bytes)
    return upload_view(row)


@router.get("")
async def list_uploads(service: ServiceOf, principal: PrincipalOf, limit: Limit = 50, offset: Offset = 0) -> UploadList:
    rows, total = await service.managed.uploads.list(principal.tenant_id, limit, offset)
    return UploadList(uploads=[upload_view(row) for row in rows], total=total)


@router.delete("/{name}", status_code=204)
async def delete(name: Annotated[str, PathParameter(max_length=128)], service: ServiceOf, principal: PrincipalOf) -> Response:
    await service.managed.uploads.delete(principal.tenant_id, name)
    await service.audit.tell(principal, Action.UPLOAD_DELETE, name)
    return Response(status_code=204)
