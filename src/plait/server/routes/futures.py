"""Promised results: a client asks for one and is kept waiting until it is there."""

from fastapi import APIRouter, Response
from fastapi.responses import JSONResponse

from plait.operations.future_state import Expired, Failed, Finished, Pending
from plait.server.errors import Gone
from plait.server.logs import note
from plait.server.routes.dependencies import PrincipalOf, ServiceOf
from plait.server.wire.models.futures import (
    CancelFutureRequest,
    NotReadyResponse,
    RequestFailedResponse,
    RetrieveFutureRequest,
)

router = APIRouter(prefix="/api/v1", tags=["futures"])
NOT_READY = 408


@router.post("/retrieve_future")
async def retrieve_future(body: RetrieveFutureRequest, service: ServiceOf, principal: PrincipalOf) -> Response:
    note(call=body.request_id)
    match await service.results.retrieve(body.request_id, principal.tenant_id):
        case Finished(payload, content_type):
            return Response(payload, media_type=content_type)
        case Failed(error, category):
            return JSONResponse(RequestFailedResponse(error=error, category=category.value).model_dump())
        case Pending():
            return JSONResponse(NotReadyResponse().model_dump(exclude_none=True), status_code=NOT_READY)
        case Expired(reason):
            raise Gone(f"the result of {body.request_id!r} is gone: {reason}.", "Send the request again.")
    raise AssertionError


@router.post("/cancel_future")
async def cancel_future(body: CancelFutureRequest, service: ServiceOf, principal: PrincipalOf) -> dict[str, str]:
    service.futures.table.state(body.request_id, principal.tenant_id)
    service.sampling.cancel(body.request_id)
    return {}
