"""Around every HTTP request: an id for it, a line in the log, its count and duration, its span, and an answer if its route breaks.

The id is the client's own X-Request-ID if that is a plain word, else a new one; it is in the answer's X-Request-ID and in the log.
"""

import logging
import re
import time
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from plait.server.logs import HTTP_LOGGER, begin
from plait.server.metrics import Metrics
from plait.server.tracing import Tracing

REQUEST_ID = "x-request-id"
NO_ROUTE = "(none)"
CLIENT_LEFT = 499
"""The client closed the connection before it was answered; the status that nginx gives this."""
QUIET_ROUTES = frozenset(("/metrics", "/healthz", "/readyz", "/api/v1/healthz"))
NOT_A_FAULT = frozenset((408, 429))
"""Statuses by which a client is told to wait."""
_PLAIN_ID = re.compile(r"[A-Za-z0-9_.-]{1,64}")

log = logging.getLogger(HTTP_LOGGER)


@dataclass(slots=True)
class _Exchange:
    scope: Scope
    request_id: str
    start_s: float = field(default_factory=time.monotonic)
    status: int = CLIENT_LEFT
    is_answered: bool = False

    @property
    def route(self) -> str:
        return route_of(self.scope)

    @property
    def duration_s(self) -> float:
        return time.monotonic() - self.start_s


class HttpObserver:
    def __init__(self, app: ASGIApp, metrics: Metrics, tracing: Tracing) -> None:
        self._app, self._metrics, self._tracing = app, metrics, tracing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        exchange = _Exchange(scope, _request_id(headers))
        noted = begin(request_id=exchange.request_id)
        with self._tracing.request(scope["method"], headers) as span:
            try:
                await self._answer(exchange, receive, send)
            finally:
                self._end(exchange, noted, span)

    async def _answer(self, exchange: _Exchange, receive: Receive, send: Send) -> None:
        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                exchange.status, exchange.is_answered = message["status"], True
                MutableHeaders(scope=message)[REQUEST_ID] = exchange.request_id
            await send(message)

        try:
            await self._app(exchange.scope, receive, send_with_id)
        except Exception:
            log.exception("%s %s failed", exchange.scope["method"], exchange.route)
            if exchange.is_answered:
                raise
            detail = f"the server failed at this request; its log tells why under the request id {exchange.request_id}."
            await JSONResponse({"detail": detail}, status_code=500)(exchange.scope, receive, send_with_id)

    def _end(self, exchange: _Exchange, noted: dict[str, Any], span: Any | None) -> None:
        method, route, status, duration_s = exchange.scope["method"], exchange.route, exchange.status, exchange.duration_s
        self._metrics.answered(method, route, status, duration_s)
        known = {name: value for name, value in exchange.scope.get("path_params", {}).items() if name.endswith("_id")} | noted
        self._tracing.end_request(span, route, status, {"method": method, **known})
        level = _level(route, status)
        if log.isEnabledFor(level):
            fields = {"method": method, "route": route, "status": status, "duration_ms": round(duration_s * 1e3, 3), **known}
            why = f": {known['error']}" if "error" in known else ""
            log.log(level, "%s %s %d%s", method, route, status, why, extra={"fields": fields})


def route_of(scope: Scope) -> str:
    """The route as it was declared, a label of few values where paths are many: with the prefix of the routers that it is in."""
    route = scope.get("route")
    if route is None:
        return NO_ROUTE
    own_path = getattr(route, "path_format", route.path).format_map(scope.get("path_params", {}))
    path: str = scope["path"]
    return (path.removesuffix(own_path) if path.endswith(own_path) else "") + route.path


def _request_id(headers: Headers) -> str:
    given = headers.get(REQUEST_ID, "")
    return given if _PLAIN_ID.fullmatch(given) else uuid4().hex


def _level(route: str, status: int) -> int:
    if status >= 500 and status != 503:
        return logging.ERROR
    if status >= 400 and status not in NOT_A_FAULT:
        return logging.WARNING
    return logging.DEBUG if route in QUIET_ROUTES else logging.INFO
