"""Training runs: models as resources."""

from typing import Annotated, Literal

from fastapi import APIRouter, Query

from plait.server.routes.dependencies import PrincipalOf, ServiceOf
from plait.server.wire.models.base import Cursor, PageQuery
from plait.server.wire.models.checkpoints import CheckpointsResponse
from plait.server.wire.models.runs import TrainingRun, TrainingRunsResponse

router = APIRouter(prefix="/api/v1/training_runs", tags=["training runs"])
AccessScope = Literal["owned", "accessible"]


@router.get("")
async def list_training_runs(
    query: Annotated[PageQuery, Query()], service: ServiceOf, principal: PrincipalOf
) -> TrainingRunsResponse:
    runs, total = await service.runs.page(principal.tenant_id, query.limit, query.offset, query.project_id)
    return TrainingRunsResponse(training_runs=runs, cursor=Cursor(offset=query.offset, limit=query.limit, total_count=total))


@router.get("/{run_id}")
async def get_training_run(
    run_id: str, service: ServiceOf, principal: PrincipalOf, access_scope: AccessScope = "owned"
) -> TrainingRun:
    return await service.runs.get(run_id, principal.tenant_id, with_public=access_scope == "accessible")


@router.get("/{run_id}/checkpoints")
async def list_checkpoints_of_run(run_id: str, service: ServiceOf, principal: PrincipalOf) -> CheckpointsResponse:
    return CheckpointsResponse(checkpoints=await service.runs.checkpoints(run_id, principal.tenant_id))
