"""Promised results and how a client waits for them."""

from typing import Annotated, Literal

from pydantic import Field

from plait.server.wire.models.base import Identifier, Request, Response

QueueState = Literal["active", "paused_capacity", "paused_rate_limit"]


class FutureResponse(Response):
    """The promise of a result."""

    request_id: str
    model_id: str | None = None
    sample_sequence_ids: list[str] | None = None
    """Of samples, and then required: one id for each sequence, in the order of the result."""


class RetrieveFutureRequest(Request):
    request_id: Identifier
    allow_metadata_only: bool = False
    """A large result may be announced by its size first."""


class NotReadyResponse(Response):
    """With status 408: ask again at once."""

    queue_state: QueueState = "active"
    queue_state_reason: str | None = None
    """Shown to the user."""


class TryAgainResponse(Response):
    """As NotReadyResponse with status 200, for old clients; SDK 0.38 warns each time."""

    request_id: str
    queue_state: QueueState = "active"
    queue_state_reason: str | None = None
    type: Literal["try_again"] = "try_again"


class ResultSizeResponse(Response):
    """Only if `allow_metadata_only`, and only once."""

    response_payload_size: Annotated[int, Field(ge=0)]
    """In bytes."""
    status: Literal["complete_metadata"] = "complete_metadata"


class RequestFailedResponse(Response):
    """With status 200: the work failed, and the client raises at once."""

    error: str
    category: Literal["unknown", "server", "user"]


class CancelFutureRequest(Request):
    request_id: Identifier


class SamplingSessionTarget(Request):
    type: Literal["sampling_session"] = "sampling_session"
    sampling_session_id: Identifier
    cloned_sampler_id: Annotated[int, Field(ge=0)] = 0
    """Clones of a client take seq_ids of this many thousand million and up."""


class RetrieveFuturesRequest(Request):
    """What of a sampling session has ended since `prev_cursor`."""

    target: SamplingSessionTarget
    prev_cursor: Annotated[int, Field(ge=0)] = 0
    timeout: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    """In seconds; 0 only says what was retrieved."""
    retrieved_request_ids: list[str] = []
    """Whose results may be dropped."""


class FutureFinished(Response):
    request_id: str
    response_payload_uncompressed_size: int | None = None
    """In bytes."""
    state: Literal["finished"] = "finished"


class FutureFailed(Response):
    request_id: str
    state: Literal["failed"] = "failed"


class RetrieveFuturesResponse(Response):
    completions: list[Annotated[FutureFinished | FutureFailed, Field(discriminator="state")]]
    cursor: int
