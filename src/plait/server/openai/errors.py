"""Errors in the form that OpenAI's clients read: `{"error": {"message", "type", "param", "code"}}`."""

import json
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

from plait.operations.futures import UnknownFuture
from plait.rollout.service import RolloutError
from plait.server.database.errors import DatabaseError, UnstorableValue
from plait.server.errors import ServiceError, TooMany, invalid_body
from plait.server.openai.responses import ErrorBody, ErrorObject
from plait.types.errors import PlaitError, WorkerFailure

TYPES = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}
CODES = {401: "invalid_api_key", 404: "model_not_found", 429: "rate_limit_exceeded"}
INVALID, SERVER = "invalid_request_error", "server_error"


log = logging.getLogger("plait.server")


class OpenAIRoute(APIRoute):
    """Answers every error of its route in OpenAI's form."""

    def get_route_handler(self) -> Callable[[Request], Awaitable[Response]]:  # type: ignore[override]
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            try:
                return await handler(request)
            except RequestValidationError as error:
                return error_response(400, _object_of_invalid(error))
            except PlaitError as error:
                return plait_error_response(error)
            except HTTPException as error:
                return error_response(error.status_code, ErrorObject(message=error.detail, type=INVALID, param=None, code=None))
            except Exception as error:
                log.exception("%s %s failed", request.method, request.url.path)
                return error_response(500, unforeseen(error))

        return handle


def plait_error_response(error: PlaitError) -> Response:
    response = error_response(status_of(error), error_object(error))
    if isinstance(error, ServiceError) and error.retry_after_s is not None:
        response.headers["retry-after"] = f"{error.retry_after_s:g}"
    return response


def error_response(status: int, content: ErrorObject) -> Response:
    return Response(error_json(content), status, media_type="application/json")


def error_json(content: ErrorObject) -> str:
    """Pure ASCII: a message may quote text of a request that is no Unicode."""
    return json.dumps(ErrorBody(error=content).model_dump())


def status_of(error: PlaitError) -> int:
    """400 for what OpenAI has no status for."""
    match error:
        case ServiceError():
            return 400 if error.status == 422 else error.status
        case UnknownFuture():
            return 404
        case DatabaseError() if not isinstance(error, UnstorableValue):
            return 503
        case RolloutError() | WorkerFailure():
            return 500
    return 400


def error_object(error: PlaitError) -> ErrorObject:
    status = status_of(error)
    code = CODES.get(status)
    if isinstance(error, TooMany) and error.retry_after_s is None:
        code = "insufficient_quota"
    kind = TYPES.get(status, INVALID if status < 500 else SERVER)
    return ErrorObject(message=str(error), type=kind, param="model" if code == "model_not_found" else None, code=code)


def unforeseen(error: Exception) -> ErrorObject:
    return ErrorObject(message=repr(error), type=SERVER, param=None, code=None)


def _object_of_invalid(error: RequestValidationError) -> ErrorObject:
    """Of the first problem; the message names one for each field. (Where a field has several forms, each form has its problem.)"""
    problems: dict[str, dict[str, Any]] = {}
    for problem in error.errors():
        problems.setdefault(_param(problem).partition(".")[0], problem)
    lines = [f"{param}: {problem['msg']}" if (param := _param(problem)) else _whole(problem) for problem in problems.values()]
    first = next(iter(problems.values()), {})
    code = first.get("type") if first.get("type") == "unsupported_parameter" else None
    return ErrorObject(message="; ".join(lines), type=INVALID, param=_param(first) or None, code=code)


def _whole(problem: dict[str, Any]) -> str:
    return invalid_body(problem) if problem["type"] == "json_invalid" else str(problem["msg"])


def _param(problem: dict[str, Any]) -> str:
    if problem["type"] == "json_invalid":
        return ""
    named = problem.get("ctx", {}).get("param")
    return str(named or ".".join(str(part) for part in problem.get("loc", ())[1:]))
