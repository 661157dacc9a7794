"""Models that a client trains. Every route but get_info answers with a future."""

import time

from fastapi import APIRouter, Request
from pydantic import BaseModel

from plait.lora.targets import target_modules
from plait.server.call import Call, Kind
from plait.server.database import tables as t
from plait.server.errors import ServiceError
from plait.server.logs import note
from plait.server.names import model_id_of
from plait.server.principal import Principal
from plait.server.routes.dependencies import PrincipalOf, ServiceOf
from plait.server.routes.refused_calls import CallRoute
from plait.server.service import Service
from plait.server.trained_kind import METADATA_KEY, NOTE, SHAPE_KEY, is_lora, rank_of, training_asked, training_of
from plait.server.wire.losses import to_loss_settings
from plait.server.wire.models.base import AnyMetadata
from plait.server.wire.models.futures import FutureResponse
from plait.server.wire.models.training import (
    CreateModelRequest,
    GetInfoRequest,
    GetInfoResponse,
    LoraConfigRequest,
    ModelData,
    OptimStepRequest,
)
from plait.server.wire.models.weights import (
    LoadWeightsRequest,
    SaveWeightsExternalRequest,
    SaveWeightsForSamplerRequest,
    SaveWeightsRequest,
)
from plait.server.wire.requests import decompress, parse_forward_backward
from plait.types.seeds import derive_seed

router = APIRouter(prefix="/api/v1", tags=["training"])
calls = APIRouter(route_class=CallRoute)
DEFAULT_LORA = LoraConfigRequest(rank=32)


@router.post("/create_model")
async def create_model(body: CreateModelRequest, service: ServiceOf, principal: PrincipalOf) -> FutureResponse:
    service.sessions.owned(body.session_id, principal.tenant_id)
    service.samplers.check_base(body.base_model)
    lora, training = body.lora_config or DEFAULT_LORA, training_asked(body.user_metadata) or "lora"
    if training == "full" and not service.settings.full.max_resident:
        raise ServiceError("training of all weights is not served here.", f"Leave {METADATA_KEY} out of user_metadata.")
    if training == "lora" and lora.rank > service.settings.lora.max_rank:
        raise ServiceError(f"lora_config.rank is {lora.rank}; at most {service.settings.lora.max_rank} is served.", "Ask for less.")
    model_id = model_id_of(body.session_id, body.model_seq_id)
    shape = _lora(service, lora, model_id) | ({SHAPE_KEY: training} if training == "full" else {})
    row = _row(service, principal, model_id, body.session_id, body.base_model, shape, body.user_metadata)
    return await _create(service, row, Call(model_id, 0, Kind.CREATE, _payload(body)))


async def _create(service: Service, row: t.Model, call: Call) -> FutureResponse:
    _note(service, call)
    async with service.creating:  # Else several at once could all pass the check.
        if not await service.models.exists(row.model_id, row.tenant_id):
            await service.check_live_adapters(row.tenant_id)
        request_id = await service.models.create(row, call)
    return FutureResponse(request_id=request_id, model_id=call.model_id)


def _row(
    service: Service,
    principal: Principal,
    model_id: str,
    session_id: str,
    base_model: str,
    lora: t.Json,
    metadata: AnyMetadata | None,
) -> t.Model:
    now_s = time.time()
    is_strict = principal.is_strict or service.settings.strict_policy == "strict"
    return t.Model(
        model_id=model_id, session_id=session_id, tenant_id=principal.tenant_id, base_model=base_model, lora=lora,
        created_s=now_s, last_request_s=now_s, user_metadata=(metadata or {}) | {"policy": "strict"} if is_strict else metadata,
    )  # fmt: skip


def _lora(service: Service, lora: LoraConfigRequest, model_id: str) -> t.Json:
    modules = target_modules(attention=lora.train_attn, mlp=lora.train_mlp, unembedding=lora.train_unembed)
    seed = lora.seed if lora.seed is not None else derive_seed("adapter", model_id)
    flags = {"train_attn": lora.train_attn, "train_mlp": lora.train_mlp, "train_unembed": lora.train_unembed}
    return {"rank": lora.rank, "alpha": service.settings.lora.alpha, "target_modules": list(modules), "seed": seed} | flags


def _payload(body: BaseModel) -> bytes:
    return body.model_dump_json().encode()


@router.post("/get_info")
async def get_info(body: GetInfoRequest, service: ServiceOf, principal: PrincipalOf) -> GetInfoResponse:
    row = await service.models.row(body.model_id, principal.tenant_id)
    base = service.bases.of_stored(row.base_model)
    data = ModelData(arch=base.family, model_name=row.base_model, tokenizer_id=base.served.tokenizer_id(row.base_model))
    return GetInfoResponse(
        model_id=row.model_id, model_data=data, is_lora=is_lora(row.lora), lora_rank=rank_of(row.lora), model_name=row.base_model,
        note=None if is_lora(row.lora) else NOTE,
    )  # fmt: skip


@calls.post("/forward_backward", openapi_extra={"requestBody": {"content": {"application/x-protobuf": {}}, "required": True}})
async def forward_backward(request: Request, service: ServiceOf, principal: PrincipalOf) -> FutureResponse:
    body = decompress(await request.body(), request.headers.get("content-encoding"))
    parsed = parse_forward_backward(body, None)
    to_loss_settings(parsed)
    await service.check_strict(parsed, principal.tenant_id)
    return await _submit(service, principal, Call(parsed.model_id, parsed.seq_id, Kind.FORWARD_BACKWARD, body))


@calls.post("/optim_step")
async def optim_step(body: OptimStepRequest, service: ServiceOf, principal: PrincipalOf) -> FutureResponse:
    return await _submit(service, principal, Call(body.model_id, body.seq_id, Kind.OPTIM_STEP, _payload(body)))


@calls.post("/save_weights")
async def save_weights(body: SaveWeightsRequest, service: ServiceOf, principal: PrincipalOf) -> FutureResponse:
    return await _submit(service, principal, Call(body.model_id, body.seq_id, Kind.SAVE, _payload(body)))


@calls.post("/save_weights_for_sampler")
async def save_weights_for_sampler(
    body: SaveWeightsForSamplerRequest, service: ServiceOf, principal: PrincipalOf
) -> FutureResponse:
    return await _submit(service, principal, Call(body.model_id, body.seq_id, Kind.SAVE_FOR_SAMPLER, _payload(body)))


@calls.post("/save_weights_external")
async def save_weights_external(body: SaveWeightsExternalRequest, service: ServiceOf, principal: PrincipalOf) -> FutureResponse:
    return await _submit(service, principal, Call(body.model_id, body.seq_id, Kind.SAVE_EXTERNAL, _payload(body)))


@calls.post("/load_weights")
async def load_weights(body: LoadWeightsRequest, service: ServiceOf, principal: PrincipalOf) -> FutureResponse:
    """Into a new model, or into one that exists."""
    if body.model_id is not None and body.seq_id is not None:
        return await _submit(service, principal, Call(body.model_id, body.seq_id, Kind.LOAD, _payload(body)))
    assert body.session_id is not None
    assert body.model_seq_id is not None
    service.sessions.owned(body.session_id, principal.tenant_id)
    source = await service.checkpoints.get(body.path, principal.tenant_id)
    if source.kind != "training":
        raise ServiceError(f"path {body.path!r} holds weights for a sampler.", "Load what save_weights (save_state) wrote.")
    _check_served(service, body.path, source.lora)
    asked, saved = training_asked(body.user_metadata), training_of(source.lora)
    if asked not in (None, saved):
        raise ServiceError(f"path {body.path!r} holds a {saved!r} model, not a {asked!r} one.", f"Leave {METADATA_KEY} out.")
    if body.base_model is not None:
        service.samplers.check_base(body.base_model)
        service.bases.check_same(body.path, source.base_model, body.base_model)
    model_id = model_id_of(body.session_id, body.model_seq_id)
    base_model = body.base_model or source.base_model
    row = _row(service, principal, model_id, body.session_id, base_model, source.lora, body.user_metadata)
    row.source_folder, row.with_optimizer = source.folder, body.optimizer
    return await _create(service, row, Call(model_id, 0, Kind.LOAD, _payload(body)))


def _check_served(service: Service, path: str, shape: t.Json) -> None:
    """A checkpoint may be from when the operator allowed more."""
    if training_of(shape) == "full" and not service.settings.full.max_resident:
        raise ServiceError(f"path {path!r} holds all weights, whose training is not served here.", "Load one of an adapter.")
    rank = rank_of(shape)
    if rank is not None and rank > service.settings.lora.max_rank:
        raise ServiceError(f"path {path!r} has rank {rank}; at most {service.settings.lora.max_rank} is served.", "Load another.")


async def _submit(service: Service, principal: Principal, call: Call) -> FutureResponse:
    _note(service, call)
    request_id = await service.models.submit(principal.tenant_id, call)
    return FutureResponse(request_id=request_id, model_id=call.model_id)


def _note(service: Service, call: Call) -> None:
    """For log and trace."""
    note(model_id=call.model_id, call=call.request_id)
    service.tracing.remember(call.request_id)


router.include_router(calls)
