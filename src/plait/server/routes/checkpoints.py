"""Checkpoints as resources. In an address a checkpoint is RUN/checkpoints/KIND/NAME, KIND as in its tinker:// path."""

from typing import Annotated

from fastapi import APIRouter, Header, Query, Response

from plait.server.errors import NotFound, ServiceError
from plait.server.routes.dependencies import PrincipalOf, ServiceOf
from plait.server.tinker_path import KINDS, TinkerPath
from plait.server.training_runs import as_weights_info
from plait.server.wire.models.base import Cursor, PageQuery
from plait.server.wire.models.checkpoints import (
    CheckpointsResponse,
    CheckpointTtlRequest,
    CopyWeightsRequest,
    CopyWeightsResponse,
    WeightsInfoRequest,
    WeightsInfoResponse,
)

router = APIRouter(prefix="/api/v1", tags=["checkpoints"])
ADDRESS = "/training_runs/{run_id}/checkpoints/{kind}/{name}"


def checkpoint_path(run_id: str, kind: str, name: str) -> str:
    """The tinker:// path. Raises NotFound if there is no such kind."""
    if kind not in KINDS:
        raise NotFound("kind of checkpoint", kind)
    return str(TinkerPath(run_id, KINDS[kind], name))


@router.get("/checkpoints")
async def list_checkpoints(query: Annotated[PageQuery, Query()], service: ServiceOf, principal: PrincipalOf) -> CheckpointsResponse:
    found, total = await service.runs.checkpoint_page(principal.tenant_id, query.limit, query.offset)
    return CheckpointsResponse(checkpoints=found, cursor=Cursor(offset=query.offset, limit=query.limit, total_count=total))


@router.delete(ADDRESS, status_code=204)
async def delete_checkpoint(run_id: str, kind: str, name: str, service: ServiceOf, principal: PrincipalOf) -> Response:
    await service.checkpoint_actions.delete(principal, checkpoint_path(run_id, kind, name))
    return Response(status_code=204)


@router.post(f"{ADDRESS}/publish", status_code=204)
async def publish_checkpoint(run_id: str, kind: str, name: str, service: ServiceOf, principal: PrincipalOf) -> Response:
    await service.checkpoint_actions.set_public(principal, checkpoint_path(run_id, kind, name), public=True)
    return Response(status_code=204)


@router.delete(f"{ADDRESS}/publish", status_code=204)
async def unpublish_checkpoint(run_id: str, kind: str, name: str, service: ServiceOf, principal: PrincipalOf) -> Response:
    await service.checkpoint_actions.set_public(principal, checkpoint_path(run_id, kind, name), public=False)
    return Response(status_code=204)


@router.put(f"{ADDRESS}/ttl", status_code=204)
async def set_checkpoint_ttl(
    run_id: str, kind: str, name: str, body: CheckpointTtlRequest, service: ServiceOf, principal: PrincipalOf
) -> Response:
    await service.checkpoint_actions.set_ttl(principal, checkpoint_path(run_id, kind, name), body.ttl_seconds)
    return Response(status_code=204)


@router.post("/weights_info")
async def weights_info(body: WeightsInfoRequest, service: ServiceOf, principal: PrincipalOf) -> WeightsInfoResponse:
    return as_weights_info(await service.checkpoints.get(body.tinker_path, principal.tenant_id))


@router.post("/copy_weights")
async def copy_weights(
    body: CopyWeightsRequest,
    service: ServiceOf,
    principal: PrincipalOf,
    x_idempotency_key: Annotated[str | None, Header()] = None,
    x_tinker_weights_access_token: Annotated[str | None, Header()] = None,
) -> CopyWeightsResponse:
    if body.weights_access_token or x_tinker_weights_access_token:
        raise ServiceError("weights_access_token is not served.", "Let the owner publish the checkpoint, and leave it out.")
    if body.session_id is not None:
        service.sessions.owned(body.session_id, principal.tenant_id)
    return CopyWeightsResponse(tinker_path=await service.copier.copy(principal, body, x_idempotency_key))
