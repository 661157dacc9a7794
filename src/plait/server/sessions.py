"""Sessions of clients: opened, kept alive by heartbeats, ended; what they hold is put away when they are gone."""

import time
from collections.abc import Callable, Sequence

from sqlalchemy.orm import Session

from plait.operations.sessions import SessionGone, SessionTable, UnknownSession
from plait.server.database import models, sessions
from plait.server.database.database import Database
from plait.server.database.tables import ClientSession
from plait.server.errors import Gone, NotFound
from plait.server.names import new_session_id
from plait.server.principal import Principal
from plait.server.wire.models.sessions import CreateSessionRequest

PutAway = Callable[[Sequence[str], bool], None]


class Sessions:
    """`put_away(session_ids, have_ended)` is told of sessions that ended or were lost."""

    def __init__(self, database: Database, heartbeat_timeout_s: float, put_away: "PutAway") -> None:
        self._database, self._put_away = database, put_away
        self._table = SessionTable(heartbeat_timeout_s)
        self._owners: dict[str, str] = {}
        self._heartbeats: dict[str, float] = {}
        """Not stored yet."""

    @property
    def num_live(self) -> int:
        return self._table.num_live

    def count_live(self, session_ids: Sequence[str]) -> int:
        """How many of them are of clients that are there."""
        return sum(map(self._table.is_live, session_ids))

    async def resume(self) -> None:
        """After a restart: those that were alive when the server stopped have a whole time-out to come back."""
        rows = sorted(await self._database.run(sessions.open_sessions), key=lambda row: row.heartbeat_s)
        now_s = time.monotonic()
        for row in rows:
            self._open(row.session_id, row.tenant_id, now_s - (rows[-1].heartbeat_s - row.heartbeat_s))
        self._table.expired(now_s)

    def _open(self, session_id: str, tenant_id: str, now_s: float) -> None:
        self._owners[session_id] = tenant_id
        self._table.open(session_id, tenant_id, now_s)

    async def create(self, principal: Principal, request: CreateSessionRequest) -> str:
        session_id, now_s = new_session_id(), time.time()
        row = ClientSession(
            session_id=session_id, tenant_id=principal.tenant_id, created_s=now_s, heartbeat_s=now_s, tags=request.tags,
            user_metadata=request.user_metadata, display_name=request.display_name, project_id=request.project_id,
            sdk_version=request.sdk_version,
        )  # fmt: skip
        await self._database.run(lambda session: sessions.add_session(session, row))
        self._open(session_id, principal.tenant_id, time.monotonic())
        return session_id

    def owned(self, session_id: str, tenant_id: str) -> None:
        """Raises NotFound unless it is a session of the tenant that has not ended."""
        if self._owners.get(session_id) != tenant_id:
            raise NotFound("session", session_id)

    def heartbeat(self, session_id: str, tenant_id: str) -> None:
        """Raises NotFound, or Gone if it has finished."""
        try:
            self._table.heartbeat(session_id, tenant_id, time.monotonic())
        except UnknownSession as error:
            raise NotFound("session", session_id) from error
        except SessionGone as error:
            raise Gone(error.message, error.remedy) from error
        self._heartbeats[session_id] = time.time()

    async def finish(self, session_id: str, tenant_id: str, reason: str) -> None:
        """Its models leave the trainer, their state stays. Again: nothing."""
        try:
            self._table.finish(session_id, tenant_id, time.monotonic())
        except UnknownSession as error:
            raise NotFound("session", session_id) from error
        await self._database.run(lambda session: _end(session, session_id, reason))
        self._owners.pop(session_id, None)
        self._put_away([session_id], True)

    async def sweep(self) -> None:
        """Put away what was lost, and store the heartbeats."""
        lost = self._table.expired(time.monotonic())
        if lost:
            self._put_away(lost, False)
        heartbeats, self._heartbeats = self._heartbeats, {}
        if heartbeats:
            await self._database.run(lambda session: sessions.record_heartbeats(session, heartbeats))


def _end(session: Session, session_id: str, reason: str) -> None:
    sessions.end_session(session, session_id, reason, time.time())
    models.close_models(session, session_id)
