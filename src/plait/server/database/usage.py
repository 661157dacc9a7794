"""What tenants use, by model and hour (UTC)."""

from datetime import UTC, datetime

import msgspec
from sqlalchemy import select, update
from sqlalchemy.orm import Session

from plait.server.database.rows import of_tenant, page
from plait.server.database.tables import UsageRow

HOUR_FORMAT = "%Y-%m-%dT%H"


class Usage(msgspec.Struct, frozen=True):
    """An amount to be added."""

    prompt_tokens: int = 0
    """Computed, without those taken from the cache."""
    cached_tokens: int = 0
    sampled_tokens: int = 0
    trained_tokens: int = 0
    device_s: float = 0.0
    num_requests: int = 0


def hour_of(time_s: float) -> str:
    return datetime.fromtimestamp(time_s, UTC).strftime(HOUR_FORMAT)


def add_usage(session: Session, tenant_id: str, base_model: str, time_s: float, usage: Usage) -> None:
    """Add to the hour of `time_s`."""
    hour = hour_of(time_s)
    amounts = msgspec.structs.asdict(usage)
    sums = {name: getattr(UsageRow, name) + amount for name, amount in amounts.items()}
    is_row = (UsageRow.tenant_id == tenant_id, UsageRow.base_model == base_model, UsageRow.hour == hour)
    changed = session.execute(update(UsageRow).where(*is_row).values(sums).returning(UsageRow.hour)).first()
    if changed is None:
        session.add(UsageRow(tenant_id=tenant_id, base_model=base_model, hour=hour, **amounts))
        session.flush()


def list_usage(
    session: Session, tenant_id: str | None, from_s: float, to_s: float, limit: int, offset: int
) -> tuple[list[UsageRow], int]:
    """Of the hours from that of `from_s` to the one before that of `to_s`, in order."""
    statement = of_tenant(UsageRow, tenant_id).where(UsageRow.hour >= hour_of(from_s), UsageRow.hour < hour_of(to_s))
    return page(session, statement.order_by(UsageRow.hour, UsageRow.tenant_id, UsageRow.base_model), limit, offset)


def total_usage(session: Session, tenant_id: str | None, from_s: float, to_s: float) -> dict[tuple[str, str], Usage]:
    """The same summed, by (tenant_id, base_model)."""
    hours = select(UsageRow).where(UsageRow.hour >= hour_of(from_s), UsageRow.hour < hour_of(to_s)).order_by(UsageRow.hour)
    totals: dict[tuple[str, str], Usage] = {}
    for row in session.scalars(hours if tenant_id is None else hours.where(UsageRow.tenant_id == tenant_id)):
        key = (row.tenant_id, row.base_model)
        so_far = totals.get(key, Usage())
        totals[key] = Usage(**{name: getattr(so_far, name) + getattr(row, name) for name in Usage.__struct_fields__})
    return totals
