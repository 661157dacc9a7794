"""Samplers: immutable sources of samples."""

from collections.abc import Sequence

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from plait.server.database.rows import add, find, of_tenant, page
from plait.server.database.tables import Sampler


def add_sampler(session: Session, sampler: Sampler) -> Sampler:
    """The sampler's session must exist."""
    return add(session, sampler)


def get_sampler(session: Session, sampler_id: str, tenant_id: str | None) -> Sampler | None:
    return find(session, Sampler, sampler_id, tenant_id)


def sampler_ids_of_session(session: Session, session_id: str) -> list[str]:
    statement = select(Sampler.sampler_id).where(Sampler.session_id == session_id)
    return list(session.scalars(statement.order_by(Sampler.created_s, Sampler.sampler_id)))


def list_samplers(session: Session, tenant_id: str | None, limit: int, offset: int) -> tuple[list[Sampler], int]:
    """Newest first."""
    return page(session, of_tenant(Sampler, tenant_id).order_by(Sampler.created_s.desc(), Sampler.sampler_id.desc()), limit, offset)


def delete_snapshots(session: Session, session_ids: Sequence[str]) -> list[str]:
    """Forget the unnamed samplers of adapters in these sessions; their folders."""
    is_one = (Sampler.session_id.in_(session_ids), Sampler.model_path.is_(None), Sampler.folder != "")
    return list(session.scalars(delete(Sampler).where(*is_one).returning(Sampler.folder)))


def folders_in_use(session: Session) -> set[str]:
    """Folders that a sampler reads, which nobody may remove."""
    return set(session.scalars(select(Sampler.folder).where(Sampler.folder != "").distinct()))
