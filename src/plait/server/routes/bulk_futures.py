"""For samplers that many clients share: numbers for the clients, and all of a client's samples awaited at once."""

from fastapi import APIRouter

from plait.server.database import samplers
from plait.server.errors import NotFound
from plait.server.routes.dependencies import PrincipalOf, ServiceOf
from plait.server.wire.models.futures import RetrieveFuturesRequest, RetrieveFuturesResponse
from plait.server.wire.models.sampling import JoinSamplingSessionRequest, JoinSamplingSessionResponse

router = APIRouter(prefix="/api/v1", tags=["sampling"])


@router.post("/join_sampling_session")
async def join_sampling_session(
    body: JoinSamplingSessionRequest, service: ServiceOf, principal: PrincipalOf
) -> JoinSamplingSessionResponse:
    sampler_id = body.sampling_session_id
    row = await service.database.run(samplers.get_sampler, sampler_id, principal.tenant_id)
    if row is None:
        raise NotFound("sampler", sampler_id)
    return JoinSamplingSessionResponse(client_counter=service.sampler_clients.join(sampler_id, row.created_s))


@router.post("/retrieve_futures")
async def retrieve_futures(body: RetrieveFuturesRequest, service: ServiceOf, principal: PrincipalOf) -> RetrieveFuturesResponse:
    target, longest_s = body.target, service.settings.operations.poll_s
    await service.samplers.get(target.sampling_session_id, principal.tenant_id)
    timeout_s = longest_s if body.timeout is None else min(body.timeout, longest_s)
    client = (target.sampling_session_id, target.cloned_sampler_id)
    return await service.bulk_futures.poll(client, principal.tenant_id, body.prev_cursor, timeout_s)
