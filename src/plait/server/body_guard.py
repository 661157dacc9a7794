"""Before a large body is read its key is checked, so that strangers cannot make the server take it in.

- A body with a key that opens something passes; how large it may be, the application says.
- Without one a body passes only if it says that it has at most `STRANGER_BODY_BYTES`; of any other nothing is read, and the
  connection is closed.
"""

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from plait.server.errors import Unauthorized
from plait.server.principal import Authenticator
from plait.types.errors import PlaitError

STRANGER_BODY_BYTES = 64 * 2**10
"""No route that is open to strangers takes a body."""


class BodyGuard:
    def __init__(self, app: ASGIApp, authenticator: Authenticator) -> None:
        self._app, self._authenticator = app, authenticator

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = None
        if scope["type"] == "http" and not is_small(headers := Headers(scope=scope)):
            refusal = await self._refusal(headers)
        await (refusal or self._app)(scope, receive, send)

    async def _refusal(self, headers: Headers) -> JSONResponse | None:
        try:
            await self._authenticator.principal(key_in(headers))
        except PlaitError as error:
            status = error.status if isinstance(error, Unauthorized) else 503
            return JSONResponse({"detail": str(error)}, status_code=status, headers={"connection": "close"})
        return None


def is_small(headers: Headers) -> bool:
    """There is no body, or one that says that it is small."""
    length = headers.get("content-length")
    if length is None:
        return "transfer-encoding" not in headers
    return length.isdecimal() and int(length) <= STRANGER_BODY_BYTES


def key_in(headers: Headers) -> str | None:
    """Where the routes look for it too."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return headers.get("x-api-key") or (token.strip() if scheme.lower() == "bearer" else None)
