"""Exported weights: the addresses of their files, and the files themselves, which need no key."""

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import FileResponse

from plait.server.audit import Action
from plait.server.external_files import ROUTE
from plait.server.open_file_response import OpenFileResponse
from plait.server.routes.checkpoints import checkpoint_path
from plait.server.routes.dependencies import PrincipalOf, ServiceOf
from plait.server.training_runs import as_time
from plait.server.wire.models.checkpoints import ExternalWeightsUrlsResponse

router = APIRouter(tags=["external weights"])


@router.get("/api/v1/training_runs/{run_id}/checkpoints/{kind}/{name}/external_weights_urls")
async def external_weights_urls(
    run_id: str, kind: str, name: str, request: Request, service: ServiceOf, principal: PrincipalOf
) -> ExternalWeightsUrlsResponse:
    path = checkpoint_path(run_id, kind, name)
    urls, expires_s = await service.external_files.urls(path, principal.tenant_id, str(request.base_url))
    await service.audit.tell(principal, Action.CHECKPOINT_READ, path, purpose="external_weights_urls")
    return ExternalWeightsUrlsResponse(urls=urls, expires=as_time(expires_s))


@router.get(f"{ROUTE}/{{run_id}}/{{name}}/{{file:path}}", response_class=FileResponse)
async def external_weights_file(
    run_id: str,
    name: str,
    file: str,
    service: ServiceOf,
    expires: Annotated[int, Query(ge=0, lt=2**53)],
    signature: str,
) -> FileResponse:
    """Signed: it opens without a key, until it ends."""
    opened = await service.external_files.open(run_id, name, file, expires, signature)
    return OpenFileResponse(opened, filename=file.rpartition("/")[2])
