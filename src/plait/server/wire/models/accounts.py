"""Keys, audit and use."""

from datetime import UTC, date, datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from plait.server.wire.models.base import Metadata, Request, Response


def _in_utc(time: datetime) -> datetime:
    return time if time.tzinfo else time.replace(tzinfo=UTC)


UtcTime = Annotated[datetime, AfterValidator(_in_utc)]
"""A time without a zone is taken to be UTC."""


class ApiKeyOwner(Response):
    name: str


class ApiKeyUser(Response):
    email: str


class ApiKeyDetails(Response):
    org_details: ApiKeyOwner
    user_details: ApiKeyUser


class ApiKeyResponse(Response):
    """The key that asks."""

    key_id: int
    name: str
    note: str
    details: ApiKeyDetails


class AuditQuery(Request):
    event_type: str | None = None
    day: date | None = None


class AuditEntry(Response):
    timestamp: datetime
    event: str
    """`<resource>_<action>`, such as checkpoint_read."""
    event_details: dict[str, Any] = {}
    model_id: str | None = None
    tinker_path: str | None = None
    purpose: str | None = None


class AuditResponse(Response):
    entries: list[AuditEntry]


class UsageQuery(Request):
    starting_on: UtcTime
    ending_before: UtcTime

    @model_validator(mode="after")
    def _is_a_window(self) -> "UsageQuery":
        if self.starting_on >= self.ending_before:
            raise ValueError("starting_on must be before ending_before")
        return self


class TrainingUsage(Response):
    token_count: int
    type: Literal["training"] = "training"


class PrefillUsage(Response):
    cached: bool
    token_count: int
    type: Literal["sampling_prefill"] = "sampling_prefill"


class SampledUsage(Response):
    token_count: int
    type: Literal["sampling_sample"] = "sampling_sample"


class CheckpointUsage(Response):
    count: int
    type: Literal["checkpoint"] = "checkpoint"


class StorageUsage(Response):
    gigabyte_hours: float
    free: bool = True
    type: Literal["storage"] = "storage"


EventInfo = Annotated[TrainingUsage | PrefillUsage | SampledUsage | CheckpointUsage | StorageUsage, Field(discriminator="type")]


class UsageEvent(Response):
    """One bucket of time and one kind of use; nothing here has a price."""

    bucket_start: datetime
    bucket_end: datetime
    base_model: str | None = None
    user_id: str | None = None
    user_name: str | None = None
    session_id: str | None = None
    project_id: str | None = None
    event_info: EventInfo


class UsageSession(Response):
    user_metadata: Metadata | None = None


class UsageResponse(Response):
    data: list[UsageEvent]
    sessions: dict[str, UsageSession] = {}


class StorageItem(Response):
    project_id: str | None = None
    org_user_urn: str | None = None
    user_email: str | None = None
    user_name: str | None = None
    checkpoint_count: int
    size_bytes: int
    size_gigabytes: float


class CheckpointStorageResponse(Response):
    data: list[StorageItem]
