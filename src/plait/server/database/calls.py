"""Calls: the operations of models, each stored before it is acknowledged and ended once."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from sqlalchemy import and_, func, select, update
from sqlalchemy.orm import Session

from plait.server.database.rows import add, pieces
from plait.server.database.tables import Call, CallState


class CallKey(NamedTuple):
    """A call without its payload and result."""

    seq_id: int
    kind: str
    payload_digest: str
    state: CallState


def add_call(session: Session, call: Call) -> Call:
    """AlreadyThere if its model has a call with this seq_id, whatever its payload."""
    return add(session, call)


def get_call(session: Session, model_id: str, seq_id: int) -> Call | None:
    return session.get(Call, (model_id, seq_id))


def call_keys(session: Session, model_id: str, first_seq_id: int = 0) -> list[CallKey]:
    """In order, from `first_seq_id` on: what the order of calls is opened with after a restart."""
    columns = (Call.seq_id, Call.kind, Call.payload_digest, Call.state)
    statement = select(*columns).where(Call.model_id == model_id, Call.seq_id >= first_seq_id).order_by(Call.seq_id)
    return [CallKey(*row) for row in session.execute(statement)]


def last_seq_id(session: Session, model_id: str) -> int | None:
    return session.scalar(select(func.max(Call.seq_id)).where(Call.model_id == model_id))


def last_call_s(session: Session, model_ids: Sequence[str]) -> dict[str, float]:
    """When each model that has a call got its latest."""
    found: dict[str, float] = {}
    for some in pieces(model_ids):
        latest = select(Call.model_id, func.max(Call.seq_id).label("seq_id")).where(Call.model_id.in_(some)).group_by(Call.model_id)
        last = latest.subquery()
        statement = select(Call.model_id, Call.created_s).join(
            last, and_(last.c.model_id == Call.model_id, last.c.seq_id == Call.seq_id)
        )
        found.update((model_id, created_s) for model_id, created_s in session.execute(statement))
    return found


def last_change(session: Session, model_id: str, kinds: Sequence[str]) -> int:
    """The last successful call of these kinds; 0: there is none."""
    is_one = (Call.model_id == model_id, Call.state == "done", Call.kind.in_(kinds))
    return session.scalar(select(func.max(Call.seq_id)).where(*is_one)) or 0


def last_version(session: Session, model_id: str) -> int | None:
    """Of the model, after its successful calls; None: it has not been made."""
    return session.scalar(select(func.max(Call.version)).where(Call.model_id == model_id, Call.state == "done"))


def pending_calls(session: Session, model_id: str | None = None) -> list[Call]:
    """With payloads, in order; of all models if none is named."""
    statement = select(Call).where(Call.state == "pending").order_by(Call.model_id, Call.seq_id)
    return list(session.scalars(statement if model_id is None else statement.where(Call.model_id == model_id)))


def calls_after(session: Session, model_id: str, seq_id: int) -> list[Call]:
    """In order, with the payloads that are kept: what may have to run again on top of the call `seq_id`."""
    return list(session.scalars(select(Call).where(Call.model_id == model_id, Call.seq_id > seq_id).order_by(Call.seq_id)))


def finish_call(
    session: Session,
    model_id: str,
    seq_id: int,
    result: bytes,
    result_type: Literal["proto", "json"],
    now_s: float,
    version: int | None = None,
    keep_payload: bool = False,
) -> bool:
    """Store the result; False, and nothing changes, if the call is not pending. Keep the payload where it may have to run again."""
    values: dict[str, object] = {
        "state": "done",
        "result": result,
        "result_type": result_type,
        "version": version,
        "ended_s": now_s,
    }
    return _end(session, model_id, seq_id, values if keep_payload else {**values, "payload": None})


def fail_call(
    session: Session, model_id: str, seq_id: int, error: str, category: str, now_s: float, keep_payload: bool = False
) -> bool:
    """Store the error; False, and nothing changes, if the call is not pending."""
    values: dict[str, object] = {"state": "failed", "error": error, "category": category, "ended_s": now_s}
    return _end(session, model_id, seq_id, values if keep_payload else {**values, "payload": None})


def drop_payloads(session: Session, model_id: str, last_seq_id: int) -> None:
    """Of ended calls up to this one: a record holds what they did."""
    session.execute(
        update(Call)
        .where(Call.model_id == model_id, Call.seq_id <= last_seq_id, Call.state != "pending", Call.payload.is_not(None))
        .values(payload=None)
    )


def drop_results(session: Session, ended_before_s: float) -> int:
    """How many old results were dropped. The calls stay: a repeated seq_id is still recognised."""
    ended = update(Call).where(Call.ended_s < ended_before_s, Call.result.is_not(None)).values(result=None)
    return len(session.execute(ended.returning(Call.seq_id)).all())


def _end(session: Session, model_id: str, seq_id: int, values: dict[str, object]) -> bool:
    statement = update(Call).where(Call.model_id == model_id, Call.seq_id == seq_id, Call.state == "pending").values(values)
    return session.execute(statement.returning(Call.seq_id)).first() is not None
