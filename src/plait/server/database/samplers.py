"""Samplers: immutable sources of samples."""

from collections.abc import Sequence

from sqlalchemy import delete, func, select
from sqlalchemy.orm import Session

from plait.server.database.rows import add, find, of_tenant, page
from plait.server.database.tables import Sampler

_IS_SNAPSHOT = (Sampler.model_path.is_(None), Sampler.folder != "")


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
    is_one = (Sampler.session_id.in_(session_ids), *_IS_SNAPSHOT)
    return list(session.scalars(delete(Sampler).where(*is_one).returning(Sampler.folder)))


def old_snapshots(session: Session, num_kept: int) -> list[str]:
    """The unnamed samplers of adapters, but for the `num_kept` latest of each model."""
    age = func.row_number().over(partition_by=Sampler.policy_task, order_by=(Sampler.created_s.desc(), Sampler.sampler_id.desc()))
    ranked = select(Sampler.sampler_id, age.label("age")).where(*_IS_SNAPSHOT).subquery()
    return list(session.scalars(select(ranked.c.sampler_id).where(ranked.c.age > num_kept)))


def delete_samplers(session: Session, sampler_ids: Sequence[str]) -> list[str]:
    """Their folders."""
    return list(session.scalars(delete(Sampler).where(Sampler.sampler_id.in_(sampler_ids)).returning(Sampler.folder)))


def snapshot_bytes(session: Session, tenant_id: str) -> int:
    """What unnamed samplers take; those of one version share their bytes."""
    sizes = (
        select(func.max(Sampler.size_bytes).label("size_bytes"))
        .where(Sampler.tenant_id == tenant_id)
        .group_by(Sampler.policy_task, Sampler.policy_version)
        .subquery()
    )
    return int(session.scalar(select(func.sum(sizes.c.size_bytes))) or 0)


def folders_in_use(session: Session) -> set[str]:
    """Folders that a sampler reads, which nobody may remove."""
    return set(session.scalars(select(Sampler.folder).where(Sampler.folder != "").distinct()))
