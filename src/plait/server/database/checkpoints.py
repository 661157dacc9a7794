"""Checkpoints under their tinker:// paths. One that has expired is not there, whether or not its files are removed yet."""

from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import ColumnElement, Select, func, or_, select
from sqlalchemy.orm import Session

from plait.server.database.rows import add, find, of_tenant, page, pieces
from plait.server.database.samplers import snapshot_bytes
from plait.server.database.tables import Checkpoint, CheckpointKind, ClientSession, ManagedRun, Model, Upload


class StoredByProject(NamedTuple):
    project_id: str | None
    num_checkpoints: int
    size_bytes: int


def add_checkpoint(session: Session, checkpoint: Checkpoint) -> Checkpoint:
    """AlreadyThere if the path is taken."""
    return add(session, checkpoint)


def all_folders(session: Session) -> set[str]:
    return set(session.scalars(select(Checkpoint.folder)))


def replace_checkpoint(session: Session, checkpoint: Checkpoint) -> Checkpoint | None:
    """Store it under its path; the one that was there, whose files nobody needs now. AlreadyThere if that is another tenant's."""
    old = session.get(Checkpoint, checkpoint.tinker_path)
    if old is not None and old.tenant_id == checkpoint.tenant_id:
        session.delete(old)
        session.flush()
    add(session, checkpoint)
    return old


def get_checkpoint(session: Session, tinker_path: str, tenant_id: str | None, now_s: float) -> Checkpoint | None:
    """The tenant's own, or anybody's that is public."""
    found = session.get(Checkpoint, tinker_path)
    if found is None or (found.expires_s is not None and found.expires_s <= now_s):
        return None
    return found if found.public or tenant_id in (None, found.tenant_id) else None


def delete_checkpoint(session: Session, tinker_path: str, tenant_id: str | None) -> Checkpoint | None:
    """What was deleted; its files are the caller's."""
    found = find(session, Checkpoint, tinker_path, tenant_id)
    if found is not None:
        session.delete(found)
    return found


def set_public(session: Session, tinker_path: str, tenant_id: str | None, public: bool) -> Checkpoint | None:
    found = find(session, Checkpoint, tinker_path, tenant_id)
    if found is not None:
        found.public = public
    return found


def set_expiry(session: Session, tinker_path: str, tenant_id: str | None, expires_s: float | None) -> Checkpoint | None:
    found = find(session, Checkpoint, tinker_path, tenant_id)
    if found is not None:
        found.expires_s = expires_s
    return found


def list_checkpoints(
    session: Session, tenant_id: str | None, now_s: float, limit: int, offset: int
) -> tuple[list[Checkpoint], int]:
    """Newest first."""
    return page(session, _newest_first(of_tenant(Checkpoint, tenant_id).where(_is_there(now_s))), limit, offset)


def checkpoints_of_model(session: Session, model_id: str, tenant_id: str | None, now_s: float) -> list[Checkpoint]:
    """Newest first."""
    statement = of_tenant(Checkpoint, tenant_id).where(Checkpoint.model_id == model_id, _is_there(now_s))
    return list(session.scalars(_newest_first(statement)))


def latest_checkpoints(session: Session, model_ids: Sequence[str], kind: CheckpointKind, now_s: float) -> dict[str, Checkpoint]:
    """The newest of the kind of each model that has one."""
    latest: dict[str, Checkpoint] = {}
    for some in pieces(model_ids):
        statement = select(Checkpoint).where(Checkpoint.model_id.in_(some), Checkpoint.kind == kind, _is_there(now_s))
        for checkpoint in session.scalars(_newest_first(statement)):
            latest.setdefault(checkpoint.model_id, checkpoint)
    return latest


def expired_checkpoints(session: Session, now_s: float) -> list[Checkpoint]:
    """To be deleted, the longest expired first."""
    return list(session.scalars(select(Checkpoint).where(Checkpoint.expires_s <= now_s).order_by(Checkpoint.expires_s)))


def next_expiry_s(session: Session) -> float | None:
    """When the next checkpoint expires."""
    return session.scalar(select(func.min(Checkpoint.expires_s)))


def stored_bytes(session: Session, tenant_id: str) -> int:
    """Checkpoints, expired ones that are not deleted yet too, unnamed samplers, uploads, and managed runs as last measured."""
    tables = (Checkpoint, Upload, ManagedRun)
    sums = [session.scalar(select(func.sum(table.size_bytes)).where(table.tenant_id == tenant_id)) for table in tables]
    return int(sum(size or 0 for size in sums)) + snapshot_bytes(session, tenant_id)


def stored_by_project(session: Session, tenant_id: str) -> list[StoredByProject]:
    """Checkpoints by the project of their model's session; None: no project."""
    statement = (
        select(ClientSession.project_id, func.count(), func.sum(Checkpoint.size_bytes))
        .select_from(Checkpoint)
        .join(Model, Model.model_id == Checkpoint.model_id, isouter=True)
        .join(ClientSession, ClientSession.session_id == Model.session_id, isouter=True)
        .where(Checkpoint.tenant_id == tenant_id)
        .group_by(ClientSession.project_id)
        .order_by(ClientSession.project_id)
    )
    return [StoredByProject(project_id, count, int(size_bytes)) for project_id, count, size_bytes in session.execute(statement)]


def _is_there(now_s: float) -> ColumnElement[bool]:
    return or_(Checkpoint.expires_s.is_(None), Checkpoint.expires_s > now_s)


def _newest_first(statement: Select[Checkpoint]) -> Select[Checkpoint]:
    return statement.order_by(Checkpoint.created_s.desc(), Checkpoint.tinker_path.desc())
