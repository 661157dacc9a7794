"""The end of a model, and what models here do not take."""

from fastapi import APIRouter
from sqlalchemy.orm import Session

from plait.server.audit import Action, add
from plait.server.database import models
from plait.server.errors import NotFound, ServiceError
from plait.server.principal import Principal
from plait.server.routes.dependencies import PrincipalOf, ServiceOf
from plait.server.wire.models.training import CreateCustomLossRequest, UnloadModelRequest, UnloadModelResponse

router = APIRouter(prefix="/api/v1", tags=["training"])


@router.post("/unload_model")
async def unload_model(body: UnloadModelRequest, service: ServiceOf, principal: PrincipalOf) -> UnloadModelResponse:
    """It leaves the trainer and takes no further calls; what it was asked before runs on, and its checkpoints stay."""
    await service.database.run(_unload, principal, body.model_id)
    service.models.unload(body.model_id)
    return UnloadModelResponse(model_id=body.model_id)


def _unload(session: Session, who: Principal, model_id: str) -> None:
    if models.close_model(session, model_id, who.tenant_id) is None:
        raise NotFound("model", model_id)
    add(session, who, Action.MODEL_UNLOAD, model_id)


@router.post("/create_custom_loss")
async def create_custom_loss(body: CreateCustomLossRequest, service: ServiceOf, principal: PrincipalOf) -> None:
    """Refused: no code of clients runs here."""
    raise ServiceError(
        f"custom loss {body.name!r} cannot run on this server: client/config says custom_loss_server_side=false.",
        "Use forward_backward_custom, which computes the loss on the client.",
    )
