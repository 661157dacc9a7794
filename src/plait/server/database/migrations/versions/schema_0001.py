"""Tenants, their keys, sessions, models, calls, samplers, checkpoints, usage and audit."""

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0001"
down_revision = None

JSON = sa.JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")
ID = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    _make_tenants()
    _make_sessions()
    _make_models()
    _make_samplers()
    _make_checkpoints()
    _make_accounts()


def _make_tenants() -> None:
    op.create_table(
        "tenants",
        _key("tenant_id"),
        _needed("weight", sa.Double),
        _optional("quotas", JSON),
    )
    op.create_table(
        "api_keys",
        _key("key_id"),
        _tenant(),
        _needed("role", sa.String),
        _needed("secret_digest", sa.String),
        _needed("created_s", sa.Double),
        _needed("label", sa.String),
        _optional("revoked_s", sa.Double),
        _needed("strict", sa.Boolean),
    )
    op.create_index("ix_api_keys_tenant_id", "api_keys", ["tenant_id"])


def _make_sessions() -> None:
    op.create_table(
        "sessions",
        _key("session_id"),
        _tenant(),
        _needed("created_s", sa.Double),
        _needed("heartbeat_s", sa.Double),
        _optional("ended_s", sa.Double),
        _optional("end_reason", sa.String),
        _needed("tags", JSON),
        _optional("user_metadata", JSON),
        _optional("display_name", sa.String),
        _optional("project_id", sa.String),
        _optional("sdk_version", sa.String),
    )
    op.create_index("ix_sessions_of_tenant", "sessions", ["tenant_id", "created_s"])


def _make_models() -> None:
    op.create_table(
        "models",
        _key("model_id"),
        _needed("session_id", sa.String, sa.ForeignKey("sessions.session_id")),
        _tenant(),
        _needed("base_model", sa.String),
        _needed("lora", JSON),
        _needed("created_s", sa.Double),
        _needed("last_request_s", sa.Double),
        _needed("state", sa.String),
        _needed("corrupted", sa.Boolean),
        _optional("user_metadata", JSON),
        _optional("optimizer_config", JSON),
        _needed("source_folder", sa.String),
        _needed("with_optimizer", sa.Boolean),
    )
    op.create_index("ix_models_session_id", "models", ["session_id"])
    op.create_index("ix_models_of_tenant", "models", ["tenant_id", "created_s"])
    op.create_table(
        "calls",
        sa.Column("model_id", sa.String, sa.ForeignKey("models.model_id", ondelete="CASCADE"), primary_key=True),
        sa.Column("seq_id", sa.BigInteger, primary_key=True, autoincrement=False),
        _needed("kind", sa.String),
        _needed("payload_digest", sa.String),
        _needed("created_s", sa.Double),
        _optional("payload", sa.LargeBinary),
        _needed("state", sa.String),
        _optional("result", sa.LargeBinary),
        _optional("result_type", sa.String),
        _optional("error", sa.String),
        _optional("category", sa.String),
        _optional("ended_s", sa.Double),
        _optional("version", sa.BigInteger),
    )


def _make_samplers() -> None:
    op.create_table(
        "samplers",
        _key("sampler_id"),
        _needed("session_id", sa.String, sa.ForeignKey("sessions.session_id")),
        _tenant(),
        _needed("base_model", sa.String),
        _needed("created_s", sa.Double),
        _optional("model_path", sa.String),
        _needed("policy_task", sa.String),
        _needed("policy_version", sa.BigInteger),
        _needed("folder", sa.String),
        _needed("digest", sa.String),
    )
    op.create_index("ix_samplers_session_id", "samplers", ["session_id"])


def _make_checkpoints() -> None:
    op.create_table(
        "checkpoints",
        _key("tinker_path"),
        _tenant(),
        _needed("model_id", sa.String),
        _needed("kind", sa.String),
        _needed("name", sa.String),
        _needed("folder", sa.String),
        _needed("digest", sa.String),
        _needed("size_bytes", sa.BigInteger),
        _needed("base_model", sa.String),
        _needed("lora", JSON),
        _needed("created_s", sa.Double),
        _needed("version", sa.BigInteger),
        _needed("has_optimizer", sa.Boolean),
        _needed("public", sa.Boolean),
        _optional("user_metadata", JSON),
        _optional("expires_s", sa.Double),
    )
    op.create_index("ix_checkpoints_of_tenant", "checkpoints", ["tenant_id", "created_s"])
    op.create_index("ix_checkpoints_of_model", "checkpoints", ["model_id", "kind", "created_s"])
    op.create_index("ix_checkpoints_expiry", "checkpoints", ["expires_s"])


def _make_accounts() -> None:
    op.create_table(
        "usage",
        sa.Column("tenant_id", sa.String, sa.ForeignKey("tenants.tenant_id"), primary_key=True),
        _key("base_model"),
        _key("hour"),
        *(_needed(name, sa.BigInteger) for name in ("prompt_tokens", "cached_tokens", "sampled_tokens", "trained_tokens")),
        _needed("device_s", sa.Double),
        _needed("num_requests", sa.BigInteger),
    )
    op.create_table(
        "audit",
        sa.Column("id", ID, primary_key=True),
        _needed("time_s", sa.Double),
        _needed("tenant_id", sa.String),
        _needed("action", sa.String),
        _optional("key_id", sa.String),
        _optional("object_id", sa.String),
        _optional("detail", JSON),
    )
    op.create_index("ix_audit_of_tenant", "audit", ["tenant_id", "time_s"])
    op.create_table("effective_settings", _key("name"), _needed("toml", sa.String))


def _key(name: str) -> sa.Column[Any]:
    return sa.Column(name, sa.String, primary_key=True)


def _needed(name: str, kind: Any, *more: Any) -> sa.Column[Any]:
    return sa.Column(name, kind, *more, nullable=False)


def _optional(name: str, kind: Any) -> sa.Column[Any]:
    return sa.Column(name, kind, nullable=True)


def _tenant() -> sa.Column[Any]:
    return _needed("tenant_id", sa.String, sa.ForeignKey("tenants.tenant_id"))
