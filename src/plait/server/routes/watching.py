"""For who watches the service: whether it lives, whether it takes work, its metrics."""

import ipaddress

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse
from prometheus_client import CONTENT_TYPE_LATEST

from plait.server.errors import Unauthorized
from plait.server.routes.dependencies import PrincipalIfAny, ServiceOf
from plait.server.wire.models.service import HealthResponse

router = APIRouter(tags=["watching"])
FORWARDED = ("forwarded", "x-forwarded-for", "x-real-ip")
"""A proxy's headers: behind one every request seems to come from its machine."""


@router.get("/", include_in_schema=False)
async def root() -> RedirectResponse:
    """Who opens the server's address in a browser gets the page of the API."""
    return RedirectResponse("/docs")


@router.get("/healthz")
async def healthz() -> HealthResponse:
    """The process lives."""
    return HealthResponse()


@router.get("/readyz")
async def readyz(service: ServiceOf, response: Response) -> dict[str, str]:
    """It takes new work: 503 once it stops or has failed."""
    is_ready = not service.gate.is_closed and service.failure is None
    response.status_code = 200 if is_ready else 503
    return {"status": "ready" if is_ready else "stopping"}


@router.get("/metrics", response_class=Response)
async def metrics(request: Request, service: ServiceOf, principal: PrincipalIfAny) -> Response:
    """In Prometheus' text format."""
    access = service.settings.metrics_access
    if access == "key" or (access == "loopback" and not _is_from_here(request)):
        if principal is None:
            raise Unauthorized("the metrics are for the operator.", "Send a key with the role 'admin' as a Bearer token.")
        principal.require_admin()
    return Response(service.metrics.page(), media_type=CONTENT_TYPE_LATEST)


def _is_from_here(request: Request) -> bool:
    if request.client is None or any(name in request.headers for name in FORWARDED):
        return False
    return ipaddress.ip_address(request.client.host).is_loopback
