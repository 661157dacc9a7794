"""Calls in the database: stored before they are acknowledged, ended once, together with what they changed."""

import time

from sqlalchemy.orm import Session

from plait.operations.future_state import Expired, Failed, FailureCategory, Finished, FutureState, Pending
from plait.server.call import CHANGING_KINDS, JSON, PROTOBUF, Call, CallFailure, CallResult, Kind
from plait.server.database import calls, models
from plait.server.database import tables as t
from plait.server.database.database import Database


class CallJournal:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, call: Call, payload_digest: str) -> None:
        row = _row(call, payload_digest)
        await self._database.run(lambda session: calls.add_call(session, row))

    async def finish(self, call: Call, result: CallResult | CallFailure) -> None:
        await self._database.run(lambda session: _end(session, call, result))

    async def get(self, model_id: str, seq_id: int) -> t.Call | None:
        return await self._database.run(lambda session: calls.get_call(session, model_id, seq_id))

    async def last_change(self, model_id: str) -> int:
        return await self._database.run(lambda session: calls.last_change(session, model_id, CHANGING_KINDS))

    async def mark_corrupted(self, model_id: str) -> None:
        await self._database.run(lambda session: models.mark_corrupted(session, model_id))

    async def accumulated_after(self, model_id: str, seq_id: int) -> list[tuple[Call, str | None]]:
        rows = await self._database.run(lambda session: calls.calls_after(session, model_id, seq_id))
        ended = [row for row in rows if row.kind == Kind.FORWARD_BACKWARD and row.state != "pending" and row.payload is not None]
        return [(as_call(row), row.error if row.state == "failed" else None) for row in ended]


def _row(call: Call, payload_digest: str) -> t.Call:
    return t.Call(
        model_id=call.model_id, seq_id=call.seq_id, kind=call.kind, payload_digest=payload_digest, created_s=time.time(),
        payload=call.payload,
    )  # fmt: skip


def add_row(session: Session, call: Call, payload_digest: str) -> t.Call:
    """As part of a larger work."""
    return calls.add_call(session, _row(call, payload_digest))


def as_call(row: t.Call) -> Call:
    return Call(row.model_id, row.seq_id, Kind(row.kind), row.payload or b"")


def _end(session: Session, call: Call, result: CallResult | CallFailure) -> None:
    if isinstance(result, CallFailure):
        category = FailureCategory.USER if result.is_user_error else FailureCategory.SERVER
        calls.fail_call(
            session, call.model_id, call.seq_id, result.error, category, time.time(), keep_payload=result.lacks_gradients
        )  # fmt: skip
    else:
        _finish(session, call, result)
    if call.changes_version:
        calls.drop_payloads(session, call.model_id, call.seq_id)


def _finish(session: Session, call: Call, result: CallResult) -> None:
    """Nothing if it is stored already: a commit whose answer was lost."""
    is_new = calls.finish_call(
        session, call.model_id, call.seq_id, result.body, "proto" if result.content_type == PROTOBUF else "json", time.time(),
        version=result.version, keep_payload=result.has_gradients,
    )  # fmt: skip
    for effect in result.effects if is_new else ():
        effect(session)


def stored_state(row: t.Call) -> FutureState:
    """What the call came to, as far as that is kept."""
    if row.state == "failed":
        return Failed(row.error or "", FailureCategory(row.category or "unknown"))
    if row.state == "pending":
        return Pending()
    if row.result is None:
        return Expired("the result was kept for its time")
    return Finished(row.result, PROTOBUF if row.result_type == "proto" else JSON)
