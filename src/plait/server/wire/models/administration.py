"""What operators ask for: keys, tenants, use and the audit log."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from plait.server.wire.models.base import MAX_PAGE, Cursor, Response

TenantId = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.@-]{0,99}$")]
Limit = Annotated[int, Field(ge=0, le=2**53)] | None
Time = Annotated[float, Field(ge=0, le=253370764800.0)]
"""Seconds since the epoch, up to the year 9999."""


class StrictRequest(BaseModel):
    """An unknown field is an error: these requests are written by hand."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class Page(StrictRequest):
    limit: Annotated[int, Field(ge=1, le=MAX_PAGE)] = 100
    offset: Annotated[int, Field(ge=0, le=2**53)] = 0


class TenantPage(Page):
    tenant_id: TenantId | None = None
    """Absent: all."""


class CreateKeyRequest(StrictRequest):
    tenant_id: TenantId | None = None
    """A new one is made. Absent: the tenant of the key that asks."""
    role: Literal["admin", "member"] = "member"
    label: Annotated[str, Field(max_length=200, pattern=r"^[^\x00-\x1f]*$")] = ""
    """For people: whose key it is, what it is for."""
    strict: bool = False
    """Refuse training data of an older policy version from this key."""


class KeyResponse(Response):
    key_id: str
    """Public: names the key in lists and logs."""
    tenant_id: str
    role: str
    label: str
    strict: bool
    created_s: float
    """Seconds since the epoch; the others too."""
    revoked_s: float | None = None


class NewKeyResponse(KeyResponse):
    key: str
    """Shown this once; nobody can read it again."""


class KeysResponse(Response):
    keys: list[KeyResponse]
    cursor: Cursor


class QuotaChanges(StrictRequest):
    """null: no limit. An absent one stays as it is."""

    live_adapters: Limit = None
    stored_bytes: Limit = None
    tokens_per_minute: Limit = None
    concurrent_samples: Limit = None


class ChangeTenantRequest(StrictRequest):
    """What is absent stays as it is."""

    weight: Annotated[float, Field(gt=0, le=1e6)] | None = None
    """Share of the engine, against other tenants'."""
    quotas: QuotaChanges | None = None
    """null: the server's own."""


class Quotas(Response):
    live_adapters: int | None
    stored_bytes: int | None
    tokens_per_minute: int | None
    concurrent_samples: int | None


class TenantResponse(Response):
    tenant_id: str
    weight: float
    quotas: Quotas
    """In force; null: no limit."""
    has_own_quotas: bool
    stored_bytes: int


class TenantsResponse(Response):
    tenants: list[TenantResponse]
    cursor: Cursor


class UseQuery(StrictRequest):
    tenant_id: TenantId | None = None
    """Absent: all that the key may see."""
    from_s: Time = 0.0
    """Use is counted by the hour (UTC): from the hour of this time."""
    to_s: Time | None = None
    """Up to the hour before that of this time; absent: up to now."""


class UseResponse(Response):
    """Of one tenant and model."""

    tenant_id: str
    base_model: str
    prompt_tokens: int
    cached_tokens: int
    sampled_tokens: int
    trained_tokens: int
    device_s: float
    """Of the trainer."""
    num_requests: int


class UsesResponse(Response):
    usage: list[UseResponse]
    stored_bytes: dict[str, int]
    """By tenant."""


class AuditPage(TenantPage):
    from_s: Time = 0.0
    to_s: Time | None = None


class AuditRow(Response):
    time_s: float
    tenant_id: str
    action: str
    key_id: str | None
    object_id: str | None
    detail: dict[str, Any] | None


class AuditRows(Response):
    entries: list[AuditRow]
    cursor: Cursor


class CheckpointFile(Response):
    name: str
    size_bytes: int


class CheckpointFilesResponse(Response):
    tinker_path: str
    base_model: str
    version: int
    files: list[CheckpointFile]
