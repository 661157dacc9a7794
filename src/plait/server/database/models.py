"""Models: the adapters that clients train."""

from collections.abc import Mapping

from sqlalchemy import Select, select, update
from sqlalchemy.orm import Session

from plait.server.database.rows import add, find, of_tenant, page
from plait.server.database.tables import ClientSession, Model


def add_model(session: Session, model: Model) -> Model:
    """The model's session must exist."""
    return add(session, model)


def get_model(session: Session, model_id: str, tenant_id: str | None) -> Model | None:
    return find(session, Model, model_id, tenant_id)


def list_models(
    session: Session, tenant_id: str | None, limit: int, offset: int, project_id: str | None = None
) -> tuple[list[Model], int]:
    """Newest first; of one project, if it is given."""
    statement: Select[Model] = of_tenant(Model, tenant_id)
    if project_id is not None:
        statement = statement.join(ClientSession, ClientSession.session_id == Model.session_id)
        statement = statement.where(ClientSession.project_id == project_id)
    return page(session, statement.order_by(Model.created_s.desc(), Model.model_id.desc()), limit, offset)


def model_ids_of_session(session: Session, session_id: str) -> list[str]:
    return list(
        session.scalars(select(Model.model_id).where(Model.session_id == session_id).order_by(Model.created_s, Model.model_id))
    )


def live_models(session: Session) -> list[Model]:
    """All that are not closed, for a restart."""
    return list(session.scalars(select(Model).where(Model.state == "live").order_by(Model.created_s, Model.model_id)))


def sessions_of_live_models(session: Session, tenant_id: str) -> list[str]:
    """The session of each, so as many times as it has live models."""
    return list(session.scalars(select(Model.session_id).where(Model.tenant_id == tenant_id, Model.state == "live")))


def close_models(session: Session, session_id: str) -> list[str]:
    """Of an ended session: which were live until now."""
    models = list(
        session.scalars(select(Model).where(Model.session_id == session_id, Model.state == "live").order_by(Model.model_id))
    )
    for model in models:
        model.state = "closed"
    return [model.model_id for model in models]


def close_model(session: Session, model_id: str, tenant_id: str | None) -> Model | None:
    model = find(session, Model, model_id, tenant_id)
    if model is not None:
        model.state = "closed"
    return model


def mark_corrupted(session: Session, model_id: str) -> None:
    """Its state on the disk cannot be trusted any more."""
    session.execute(update(Model).where(Model.model_id == model_id).values(corrupted=True))


def record_requests(session: Session, last_request_s: Mapping[str, float]) -> None:
    """When each model id was last asked for something."""
    for model_id, time_s in last_request_s.items():
        session.execute(
            update(Model).where(Model.model_id == model_id, Model.last_request_s < time_s).values(last_request_s=time_s)
        )
