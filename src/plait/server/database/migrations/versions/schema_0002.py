"""Managed runs and uploads; indexes for what a restart and the retention of results look for among many calls."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

PENDING = sa.text("state = 'pending'")


def upgrade() -> None:
    op.create_index("ix_calls_pending", "calls", ["model_id", "seq_id"], sqlite_where=PENDING, postgresql_where=PENDING)
    op.create_index("ix_calls_ended", "calls", ["ended_s"])
    op.create_table(
        "managed_runs",
        sa.Column("run_id", sa.String, primary_key=True),
        sa.Column("tenant_id", sa.String, sa.ForeignKey("tenants.tenant_id"), nullable=False),
        sa.Column("state", sa.String, nullable=False),
        sa.Column("toml", sa.String, nullable=False),
        sa.Column("folder", sa.String, nullable=False),
        sa.Column("created_s", sa.Double, nullable=False),
        sa.Column("ended_s", sa.Double),
    )
    op.create_index("ix_managed_runs_of_tenant", "managed_runs", ["tenant_id", "created_s"])
    op.create_table(
        "uploads",
        sa.Column("upload_id", sa.String, primary_key=True),
        sa.Column("tenant_id", sa.String, sa.ForeignKey("tenants.tenant_id"), nullable=False),
        sa.Column("name", sa.String, nullable=False),
        sa.Column("folder", sa.String, nullable=False),
        sa.Column("size_bytes", sa.BigInteger, nullable=False),
        sa.Column("created_s", sa.Double, nullable=False),
    )
    op.create_index("ix_uploads_of_tenant", "uploads", ["tenant_id", "created_s"])
