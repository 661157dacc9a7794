"""The HTTP application."""

import logging

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse

from plait import __version__
from plait.operations.futures import UnknownFuture
from plait.server.body_guard import BodyGuard
from plait.server.database.errors import DatabaseError, UnstorableValue
from plait.server.errors import ServiceError, invalid_body
from plait.server.gate import GateMiddleware
from plait.server.http_observer import HttpObserver
from plait.server.logs import note
from plait.server.routes import (
    accounts,
    admin,
    bulk_futures,
    checkpoint_files,
    checkpoints,
    external_weights,
    futures,
    model_life,
    openai,
    runs,
    sampling,
    session_listings,
    sessions,
    start_up,
    tasks,
    training,
    uploads,
    watching,
)
from plait.server.service import Service
from plait.server.wire.requests import MAX_BODY_BYTES
from plait.types.errors import PlaitError

log = logging.getLogger("plait.server")


def make_app(service: Service) -> FastAPI:
    summary = "Tinker API, managed tasks, OpenAI-compatible endpoint"
    app = FastAPI(title="Plait", version=__version__, summary=summary, max_body_size=MAX_BODY_BYTES)
    app.state.service = service
    for module in (futures, sampling, training, sessions, start_up):  # The busiest first: they are searched in order.
        app.include_router(module.router)
    for listing in (runs, checkpoints, external_weights, session_listings, accounts, bulk_futures, model_life):
        app.include_router(listing.router)
    for managed in (tasks, uploads):
        app.include_router(managed.router)
    for operators in (admin, checkpoint_files, watching):
        app.include_router(operators.router)
    app.include_router(openai.router)  # The last: it answers for whatever else is asked under /v1.
    app.add_exception_handler(PlaitError, _on_plait_error)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_middleware(BodyGuard, authenticator=service.authenticator)
    app.add_middleware(GateMiddleware, gate=service.gate)
    app.add_middleware(HttpObserver, metrics=service.metrics, tracing=service.tracing)
    return app


async def _on_plait_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, PlaitError)
    headers = {}
    if isinstance(error, ServiceError) and error.retry_after_s is not None:
        headers["retry-after"] = f"{error.retry_after_s:g}"
    note(error=str(error))
    return JSONResponse({"detail": str(error)}, status_code=status_of(error), headers=headers)


def status_of(error: PlaitError) -> int:
    """A 4xx for what the caller can mend; 503 where the database is away."""
    match error:
        case ServiceError():
            return error.status
        case UnknownFuture():
            return 404
        case DatabaseError() if not isinstance(error, UnstorableValue):
            return 503
    return 422


async def _on_invalid(request: Request, error: Exception) -> JSONResponse:
    """Names field, value and what is wrong, in one line each."""
    assert isinstance(error, RequestValidationError)
    detail = "; ".join(map(invalid_body, error.errors())) or "the body cannot be read"
    note(error=detail)
    return JSONResponse({"detail": detail}, status_code=422)
