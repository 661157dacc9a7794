"""Sampled sequences of strict models, and what samplers without a name and managed runs take on the disk."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.create_table(
        "sampled_sequences",
        sa.Column("sequence_id", sa.String, primary_key=True),
        sa.Column("tenant_id", sa.String, sa.ForeignKey("tenants.tenant_id"), nullable=False),
        sa.Column("session_id", sa.String, nullable=False),
        sa.Column("model_id", sa.String, nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("num_prompt_tokens", sa.BigInteger, nullable=False),
        sa.Column("tokens", sa.LargeBinary, nullable=False),
        sa.Column("sampled_s", sa.Double, nullable=False),
    )
    op.create_index("ix_sampled_sequences_sampled_s", "sampled_sequences", ["sampled_s"])
    for table in ("samplers", "managed_runs"):
        op.add_column(table, sa.Column("size_bytes", sa.BigInteger, nullable=False, server_default="0"))
