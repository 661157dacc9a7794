"""A refused call of a model uses up its seq_id all the same.

The SDK goes on with the next seq_id, which could never run if the refused one stayed missing. So the body is taken in as it came:
in its turn it fails for the reason for which it was refused, and an optim_step after a refused forward_backward fails too.
"""

import json
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from google.protobuf.message import DecodeError

from plait.operations.claims import ProvenanceError
from plait.server.call import Call, Kind
from plait.server.routes.dependencies import principal_of, service_of
from plait.server.wire import tinker_wire_pb2 as wire
from plait.server.wire.errors import WireError
from plait.server.wire.requests import decompress
from plait.types.errors import PlaitError

REFUSALS = (RequestValidationError, WireError, ProvenanceError)
"""That the same body meets again whenever it is tried."""

log = logging.getLogger("plait.server")


class CallRoute(APIRoute):
    """A route whose path ends with a kind of calls."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handle_or_use_up(request: Request) -> Response:
            try:
                return await handle(request)
            except REFUSALS:
                await _use_up(request)
                raise

        return handle_or_use_up


async def _use_up(request: Request) -> None:
    try:
        call = await _call_of(request)
        if call is not None:
            principal = await principal_of(request, request.headers.get("x-api-key"), None)
            await (await service_of(request)).models.submit(principal.tenant_id, call)
    except PlaitError as error:  # No model of the tenant's, or no seq_id that it could have: there is nothing to use up.
        log.info("a refused call has no place: %s", error)


async def _call_of(request: Request) -> Call | None:
    """None if the body does not tell which it is."""
    kind, body = Kind(request.url.path.rpartition("/")[2]), await request.body()
    try:
        if kind == Kind.FORWARD_BACKWARD:
            body = decompress(body, request.headers.get("content-encoding"))
            message = wire.ForwardBackwardRequest.FromString(body)
            model_id, seq_id = message.model_id, message.seq_id
        else:
            content = json.loads(body)
            model_id, seq_id = content["model_id"], content["seq_id"]
    except (DecodeError, ValueError, KeyError, TypeError, WireError):
        return None
    if not isinstance(model_id, str) or type(seq_id) is not int or seq_id < 1:
        return None
    return Call(model_id, seq_id, kind, body)
