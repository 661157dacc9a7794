"""Stopping in good order: what is new is turned away, what is under way may end.

While the gate is closed, requests get 503 with a time to try again: by then another server is up. Let through are those that belong
to work under way (waiting for results, heartbeats, ends of sessions) and the operator's.
"""

import asyncio

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

RETRY_AFTER_S = 5
PASSES = frozenset(
    (
        "/api/v1/retrieve_future",
        "/api/v1/retrieve_futures",
        "/api/v1/cancel_future",
        "/api/v1/session_heartbeat",
        "/api/v1/healthz",
        "/healthz",
        "/readyz",
        "/metrics",
    )
)


class Gate:
    def __init__(self) -> None:
        self._closing = asyncio.Event()

    @property
    def is_closed(self) -> bool:
        return self._closing.is_set()

    def close(self) -> None:
        self._closing.set()

    async def wait_until_closed(self) -> None:
        await self._closing.wait()

    def passes(self, path: str) -> bool:
        return not self.is_closed or path in PASSES or path.endswith("/finish")


class GateMiddleware:
    def __init__(self, app: ASGIApp, gate: Gate) -> None:
        self._app, self._gate = app, gate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or self._gate.passes(scope["path"]):
            await self._app(scope, receive, send)
            return
        detail = f"the server stops. Send the request again in {RETRY_AFTER_S} s."
        response = JSONResponse({"detail": detail}, status_code=503, headers={"retry-after": str(RETRY_AFTER_S)})
        await response(scope, receive, send)
