"""The tables. Times (`_s`) are seconds since the epoch; folders are as their writer gave them.

Rows are data: what `Database.run` returns is detached, and changing it changes nothing stored.
"""

from typing import Any, ClassVar, Literal

from sqlalchemy import JSON, BigInteger, Double, ForeignKey, Index, Integer, LargeBinary, String, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import DeclarativeBase, Mapped, MappedAsDataclass, mapped_column

Json = dict[str, Any]
IS_PENDING = text("state = 'pending'")
JSON_COLUMN = JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")

Role = Literal["admin", "member"]
ModelState = Literal["live", "closed"]
CallState = Literal["pending", "done", "failed"]
CheckpointKind = Literal["training", "sampler", "external"]


class Base(MappedAsDataclass, DeclarativeBase, kw_only=True):
    type_annotation_map: ClassVar[dict[Any, Any]] = {
        int: BigInteger,
        float: Double,
        bytes: LargeBinary,
        Json: JSON_COLUMN,
        list[str]: JSON_COLUMN,
        Role: String,
        ModelState: String,
        CallState: String,
        CheckpointKind: String,
        Literal["proto", "json"]: String,
    }


class Tenant(Base):
    __tablename__ = "tenants"
    tenant_id: Mapped[str] = mapped_column(primary_key=True)
    weight: Mapped[float] = mapped_column(default=1.0)
    """Share of the engine, against other tenants'."""
    quotas: Mapped[Json | None] = mapped_column(default=None)
    """In place of the server's `quotas`."""


class ApiKey(Base):
    __tablename__ = "api_keys"
    key_id: Mapped[str] = mapped_column(primary_key=True)
    tenant_id: Mapped[str] = mapped_column(ForeignKey("tenants.tenant_id"), index=True)
    role: Mapped[Role]
    secret_digest: Mapped[str] = mapped_column(repr=False)
    """SHA-256 of the whole key."""
    created_s: Mapped[float]
    label: Mapped[str] = mapped_column(default="")
    revoked_s: Mapped[float | None] = mapped_column(default=None)
    strict: Mapped[bool] = mapped_column(default=False)
    """Refuse training data of an older policy version."""


class ClientSession(Base):
    """What the SDK calls a session."""

    __tablename__ = "sessions"
    session_id: Mapped[str] = mapped_column(primary_key=True)
    tenant_id: Mapped[str] = mapped_column(ForeignKey("tenants.tenant_id"))
    created_s: Mapped[float]
    heartbeat_s: Mapped[float]
    ended_s: Mapped[float | None] = mapped_column(default=None)
    end_reason: Mapped[str | None] = mapped_column(default=None)
    tags: Mapped[list[str]] = mapped_column(default_factory=list)
    user_metadata: Mapped[Json | None] = mapped_column(default=None)
    display_name: Mapped[str | None] = mapped_column(default=None)
    project_id: Mapped[str | None] = mapped_column(default=None)
    sdk_version: Mapped[str | None] = mapped_column(default=None)
    __table_args__ = (Index("ix_sessions_of_tenant", "tenant_id", "created_s"),)


class Model(Base):
    """An adapter that a client trains."""

    __tablename__ = "models"
    model_id: Mapped[str] = mapped_column(primary_key=True)
    session_id: Mapped[str] = mapped_column(ForeignKey("sessions.session_id"), index=True)
    tenant_id: Mapped[str] = mapped_column(ForeignKey("tenants.tenant_id"))
    base_model: Mapped[str]
    """The name by which the client asked for it."""
    lora: Mapped[Json]
    """rank, alpha, target_modules, seed, train_attn, train_mlp, train_unembed."""
    created_s: Mapped[float]
    last_request_s: Mapped[float]
    state: Mapped[ModelState] = mapped_column(default="live")
    corrupted: Mapped[bool] = mapped_column(default=False)
    user_metadata: Mapped[Json | None] = mapped_column(default=None)
    optimizer_config: Mapped[Json | None] = mapped_column(default=None)
    source_folder: Mapped[str] = mapped_column(default="")
    """Of the checkpoint that it started from; empty: pristine."""
    with_optimizer: Mapped[bool] = mapped_column(default=True)
    """The moments of `source_folder` were taken too."""
    __table_args__ = (Index("ix_models_of_tenant", "tenant_id", "created_s"),)


class Call(Base):
    """One operation of a model, in the client's order."""

    __tablename__ = "calls"
    model_id: Mapped[str] = mapped_column(ForeignKey("models.model_id", ondelete="CASCADE"), primary_key=True)
    seq_id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    kind: Mapped[str]
    payload_digest: Mapped[str]
    created_s: Mapped[float]
    payload: Mapped[bytes | None] = mapped_column(default=None, repr=False)
    """Kept while the call may have to run (again)."""
    state: Mapped[CallState] = mapped_column(default="pending")
    result: Mapped[bytes | None] = mapped_column(default=None, repr=False)
    result_type: Mapped[Literal["proto", "json"] | None] = mapped_column(default=None)
    error: Mapped[str | None] = mapped_column(default=None)
    category: Mapped[str | None] = mapped_column(default=None)
    """Of the error: "user", "server" or "unknown"."""
    ended_s: Mapped[float | None] = mapped_column(default=None)
    version: Mapped[int | None] = mapped_column(default=None)
    """Of the model after the call."""
    __table_args__ = (
        Index("ix_calls_pending", "model_id", "seq_id", sqlite_where=IS_PENDING, postgresql_where=IS_PENDING),
        Index("ix_calls_ended", "ended_s"),
    )


class Sampler(Base):
    """An immutable source of samples: the base model, or one version of an adapter."""

    __tablename__ = "samplers"
    sampler_id: Mapped[str] = mapped_column(primary_key=True)
    session_id: Mapped[str] = mapped_column(ForeignKey("sessions.session_id"), index=True)
    tenant_id: Mapped[str] = mapped_column(ForeignKey("tenants.tenant_id"))
    base_model: Mapped[str]
    created_s: Mapped[float]
    model_path: Mapped[str | None] = mapped_column(default=None)
    """tinker:// path; None: the base model, or a snapshot without a name."""
    policy_task: Mapped[str] = mapped_column(default="")
    policy_version: Mapped[int] = mapped_column(default=0)
    folder: Mapped[str] = mapped_column(default="")
    digest: Mapped[str] = mapped_column(default="")
    size_bytes: Mapped[int] = mapped_column(default=0, server_default="0")
    """Of the folder of a snapshot without a name; 0: the folder is a checkpoint's, or there is none."""


class StoredSequence(Base):
    """Sampled from a strict model. `tokens` are as `operations.provenance.pack_tokens` gives them."""

    __tablename__ = "sampled_sequences"
    sequence_id: Mapped[str] = mapped_column(primary_key=True)
    tenant_id: Mapped[str] = mapped_column(ForeignKey("tenants.tenant_id"))
    session_id: Mapped[str]
    model_id: Mapped[str]
    version: Mapped[int]
    num_prompt_tokens: Mapped[int]
    tokens: Mapped[bytes] = mapped_column(repr=False)
    sampled_s: Mapped[float] = mapped_column(index=True)


class Checkpoint(Base):
    __tablename__ = "checkpoints"
    tinker_path: Mapped[str] = mapped_column(primary_key=True)
    tenant_id: Mapped[str] = mapped_column(ForeignKey("tenants.tenant_id"))
    model_id: Mapped[str]
    kind: Mapped[CheckpointKind]
    name: Mapped[str]
    folder: Mapped[str]
    digest: Mapped[str]
    size_bytes: Mapped[int]
    base_model: Mapped[str]
    lora: Mapped[Json]
    created_s: Mapped[float]
    version: Mapped[int] = mapped_column(default=0)
    has_optimizer: Mapped[bool] = mapped_column(default=False)
    public: Mapped[bool] = mapped_column(default=False)
    user_metadata: Mapped[Json | None] = mapped_column(default=None)
    expires_s: Mapped[float | None] = mapped_column(default=None)
    """None: never."""
    __table_args__ = (
        Index("ix_checkpoints_of_tenant", "tenant_id", "created_s"),
        Index("ix_checkpoints_of_model", "model_id", "kind", "created_s"),
        Index("ix_checkpoints_expiry", "expires_s"),
    )


class UsageRow(Base):
    """What a tenant used of a model in one hour."""

    __tablename__ = "usage"
    tenant_id: Mapped[str] = mapped_column(ForeignKey("tenants.tenant_id"), primary_key=True)
    base_model: Mapped[str] = mapped_column(primary_key=True)
    hour: Mapped[str] = mapped_column(primary_key=True)
    """ "YYYY-MM-DDTHH", UTC."""
    prompt_tokens: Mapped[int] = mapped_column(default=0)
    """Computed, without those taken from the cache."""
    cached_tokens: Mapped[int] = mapped_column(default=0)
    sampled_tokens: Mapped[int] = mapped_column(default=0)
    trained_tokens: Mapped[int] = mapped_column(default=0)
    device_s: Mapped[float] = mapped_column(default=0.0)
    num_requests: Mapped[int] = mapped_column(default=0)


class AuditEntry(Base):
    __tablename__ = "audit"
    id: Mapped[int] = mapped_column(BigInteger().with_variant(Integer, "sqlite"), primary_key=True, init=False)
    time_s: Mapped[float]
    tenant_id: Mapped[str]
    action: Mapped[str]
    """`<noun>_<verb>`, such as "checkpoint_delete"."""
    key_id: Mapped[str | None] = mapped_column(default=None)
    object_id: Mapped[str | None] = mapped_column(default=None)
    detail: Mapped[Json | None] = mapped_column(default=None)
    __table_args__ = (Index("ix_audit_of_tenant", "tenant_id", "time_s"),)


class EffectiveSettings(Base):
    __tablename__ = "effective_settings"
    name: Mapped[str] = mapped_column(primary_key=True)
    toml: Mapped[str]


class ManagedRun(Base):
    """A task sent over HTTP, which the server runs by itself."""

    __tablename__ = "managed_runs"
    run_id: Mapped[str] = mapped_column(primary_key=True)
    tenant_id: Mapped[str] = mapped_column(ForeignKey("tenants.tenant_id"))
    state: Mapped[str]
    toml: Mapped[str]
    folder: Mapped[str]
    created_s: Mapped[float]
    ended_s: Mapped[float | None] = mapped_column(default=None)
    size_bytes: Mapped[int] = mapped_column(default=0, server_default="0")
    """Of the folder, when it was looked at last."""
    __table_args__ = (Index("ix_managed_runs_of_tenant", "tenant_id", "created_s"),)


class Upload(Base):
    """A tenant's own data, for managed runs."""

    __tablename__ = "uploads"
    upload_id: Mapped[str] = mapped_column(primary_key=True)
    tenant_id: Mapped[str] = mapped_column(ForeignKey("tenants.tenant_id"))
    name: Mapped[str]
    folder: Mapped[str]
    size_bytes: Mapped[int]
    created_s: Mapped[float]
    __table_args__ = (Index("ix_uploads_of_tenant", "tenant_id", "created_s"),)
