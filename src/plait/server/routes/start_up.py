"""What a client asks first: flags, what is served, whether it is well."""

from fastapi import APIRouter

from plait.server.bases import Base
from plait.server.routes.dependencies import PrincipalOf, ServiceOf
from plait.server.wire.models.service import (
    ClientConfigRequest,
    ClientConfigResponse,
    ClientDynamicConfigResponse,
    HealthResponse,
    ServerCapabilitiesResponse,
    SupportedModel,
    TelemetryRequest,
    TelemetryResponse,
)

router = APIRouter(prefix="/api/v1", tags=["start-up"])


@router.post("/client/config")
async def client_config(body: ClientConfigRequest, principal: PrincipalOf) -> ClientConfigResponse:
    return ClientConfigResponse(proto_compress_fwdbwd=True)


@router.post("/client/dynamic_config")
async def client_dynamic_config(body: ClientConfigRequest, principal: PrincipalOf) -> ClientDynamicConfigResponse:
    return ClientDynamicConfigResponse(sample_cancel_enabled=True)


@router.get("/get_server_capabilities")
async def server_capabilities(service: ServiceOf, principal: PrincipalOf) -> ServerCapabilitiesResponse:
    return ServerCapabilitiesResponse(supported_models=[model for base in service.bases for model in _supported(base)])


def _supported(base: Base) -> list[SupportedModel]:
    length, served = base.limits.max_context_tokens, base.served
    return [
        SupportedModel(model_name=name, max_context_length=length, warning=served.alias_warning(name)) for name in served.names
    ]  # fmt: skip


@router.post("/telemetry")
async def telemetry(body: TelemetryRequest, principal: PrincipalOf) -> TelemetryResponse:
    """Accepted and dropped."""
    return TelemetryResponse()


@router.get("/healthz")
async def healthz() -> HealthResponse:
    return HealthResponse()
