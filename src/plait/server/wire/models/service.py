"""Start-up, telemetry and what is served."""

from typing import Annotated, Any, Literal

from pydantic import Field

from plait.server.wire.models.base import Identifier, Request, Response

MIB = 2**20


class ClientConfigRequest(Request):
    """Of client/config and client/dynamic_config."""

    sdk_version: str = ""


class ClientConfigResponse(Response):
    """Flags that a client reads once; the defaults are the SDK's own."""

    pjwt_auth_enabled: bool = False
    """False: the key itself is the credential."""
    credential_default_source: str = "api_key"
    sample_dispatch_bytes_semaphore_size: int = 10 * MIB
    inflight_response_bytes_semaphore_size: int = 50 * MIB
    parallel_fwdbwd_chunks: bool = True
    proto_compress_fwdbwd: bool = False
    """True: bodies of forward_backward come compressed with zstd."""
    fwdbwd_max_chunk_len: int = 1024
    fwdbwd_max_chunk_bytes_count: int = 5_000_000
    fwdbwd_dispatch_bytes_semaphore_size: int = 50_000_000
    billing_exception_max_pause_duration_sec: int = 3600
    sample_no_retries: bool = False
    sample_enable_stuck_detection: bool = True
    sample_max_concurrent_requests: int = 2000
    use_pyqwest_transport: bool = True
    sample_use_retrieve_futures: bool = False
    """True: clients poll all samples of a session with one retrieve_futures request."""
    custom_loss_server_side: bool = False
    sample_join_sampling_session: bool = False


class ClientDynamicConfigResponse(Response):
    refresh_interval_sec: int = 300
    sample_cancel_enabled: bool = False
    """True: clients send cancel_future for samples that they give up."""
    sample_cancel_max_batch_size: int = 64


class TelemetryRequest(Request):
    """Events are kept or dropped as they are: nothing of ours depends on them."""

    events: Annotated[list[dict[str, Any]], Field(max_length=10_000)]
    platform: str = ""
    sdk_version: str = ""
    session_id: Identifier
    process_uuid: str = ""


class TelemetryResponse(Response):
    status: Literal["accepted"] = "accepted"


class HealthResponse(Response):
    status: Literal["ok"] = "ok"


class SupportedModel(Response):
    model_name: str
    max_context_length: int | None = None
    trainable: bool = True
    sampleable: bool = True
    warning: str | None = None
    """Of an alias: which weights really serve it."""


class ServerCapabilitiesResponse(Response):
    supported_models: list[SupportedModel]
