"""Who did what. Entries are only ever added."""

from collections.abc import Sequence

from sqlalchemy import or_
from sqlalchemy.orm import Session

from plait.server.database.rows import of_tenant, page
from plait.server.database.tables import AuditEntry


def add_entry(session: Session, entry: AuditEntry) -> AuditEntry:
    session.add(entry)
    session.flush()
    return entry


def list_entries(
    session: Session,
    tenant_id: str | None,
    from_s: float,
    to_s: float,
    limit: int,
    offset: int,
    nouns: Sequence[str] | None = None,
) -> tuple[list[AuditEntry], int]:
    """From `from_s` up to but not at `to_s`, oldest first; of actions on these nouns only, if they are given."""
    statement = of_tenant(AuditEntry, tenant_id).where(AuditEntry.time_s >= from_s, AuditEntry.time_s < to_s)
    if nouns is not None:
        statement = statement.where(or_(*(AuditEntry.action.startswith(f"{noun}_", autoescape=True) for noun in nouns)))
    return page(session, statement.order_by(AuditEntry.time_s, AuditEntry.id), limit, offset)
