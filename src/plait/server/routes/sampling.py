"""Samplers and samples."""

import hashlib

from fastapi import APIRouter, Request

from plait.server.logs import note
from plait.server.routes.dependencies import PrincipalOf, ServiceOf
from plait.server.sample_call import SampleCall
from plait.server.wire.models.futures import FutureResponse
from plait.server.wire.models.sampling import (
    CreateSamplingSessionRequest,
    CreateSamplingSessionResponse,
    SampleRequest,
    SamplerResponse,
)

router = APIRouter(prefix="/api/v1", tags=["sampling"])


@router.post("/create_sampling_session")
async def create_sampling_session(
    body: CreateSamplingSessionRequest, service: ServiceOf, principal: PrincipalOf
) -> CreateSamplingSessionResponse:
    return CreateSamplingSessionResponse(sampling_session_id=await service.samplers.create(principal, body))


@router.get("/samplers/{sampler_id}")
async def get_sampler(sampler_id: str, service: ServiceOf, principal: PrincipalOf) -> SamplerResponse:
    info = await service.samplers.get(sampler_id, principal.tenant_id)
    return SamplerResponse(sampler_id=info.sampler_id, base_model=info.base_model, model_path=info.model_path)


@router.post("/asample")
async def asample(body: SampleRequest, request: Request, service: ServiceOf, principal: PrincipalOf) -> FutureResponse:
    note(sampler_id=body.sampling_session_id)
    sampler = await service.samplers.get(body.sampling_session_id, principal.tenant_id)
    digest = hashlib.sha256(await request.body()).hexdigest()
    call = SampleCall.check(body, sampler, service.bases.of_stored(sampler.base_model).limits, digest)
    service.sampling.submit(call)
    return FutureResponse(request_id=call.request_id, sample_sequence_ids=call.sequence_ids)
