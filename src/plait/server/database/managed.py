"""Managed runs, and the data that tenants upload for them."""

from sqlalchemy import or_, select, update
from sqlalchemy.orm import Session

from plait.server.database.rows import add, find, of_tenant, page
from plait.server.database.tables import ManagedRun, Upload


def add_run(session: Session, run: ManagedRun) -> ManagedRun:
    return add(session, run)


def get_run(session: Session, run_id: str, tenant_id: str | None) -> ManagedRun | None:
    return find(session, ManagedRun, run_id, tenant_id)


def run_ids(session: Session) -> set[str]:
    """Of all tenants."""
    return set(session.scalars(select(ManagedRun.run_id)))


def set_run_state(session: Session, run_id: str, state: str, ended_s: float | None = None) -> ManagedRun | None:
    """`ended_s` is given when the run is over."""
    run = session.get(ManagedRun, run_id)
    if run is not None:
        run.state, run.ended_s = state, ended_s
    return run


def list_runs(session: Session, tenant_id: str | None, limit: int, offset: int) -> tuple[list[ManagedRun], int]:
    """Newest first."""
    return page(
        session, of_tenant(ManagedRun, tenant_id).order_by(ManagedRun.created_s.desc(), ManagedRun.run_id.desc()), limit, offset
    )


def unfinished_runs(session: Session) -> list[ManagedRun]:
    """For a restart, oldest first."""
    statement = select(ManagedRun).where(ManagedRun.ended_s.is_(None))
    return list(session.scalars(statement.order_by(ManagedRun.created_s, ManagedRun.run_id)))


def runs_since(session: Session, since_s: float) -> list[ManagedRun]:
    """Those that have not ended before."""
    return list(session.scalars(select(ManagedRun).where(or_(ManagedRun.ended_s.is_(None), ManagedRun.ended_s >= since_s))))


def set_run_size(session: Session, run_id: str, size_bytes: int) -> None:
    session.execute(update(ManagedRun).where(ManagedRun.run_id == run_id).values(size_bytes=size_bytes))


def add_upload(session: Session, upload: Upload) -> Upload:
    return add(session, upload)


def get_upload(session: Session, upload_id: str, tenant_id: str | None) -> Upload | None:
    return find(session, Upload, upload_id, tenant_id)


def get_upload_named(session: Session, name: str, tenant_id: str) -> Upload | None:
    return session.scalar(select(Upload).where(Upload.tenant_id == tenant_id, Upload.name == name))


def delete_upload(session: Session, upload_id: str, tenant_id: str | None) -> Upload | None:
    """What was deleted; its files are the caller's."""
    upload = find(session, Upload, upload_id, tenant_id)
    if upload is not None:
        session.delete(upload)
    return upload


def list_uploads(session: Session, tenant_id: str | None, limit: int, offset: int) -> tuple[list[Upload], int]:
    """Newest first."""
    return page(session, of_tenant(Upload, tenant_id).order_by(Upload.created_s.desc(), Upload.upload_id.desc()), limit, offset)
