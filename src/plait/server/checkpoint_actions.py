"""What owners do with their checkpoints. Each change and its audit entry are stored together; none but `delete` touches a file."""

import time
from collections.abc import Callable

from sqlalchemy.orm import Session

from plait.server.audit import Action, add
from plait.server.checkpoints import CheckpointStore
from plait.server.database import checkpoints
from plait.server.database.database import Database
from plait.server.database.tables import Checkpoint
from plait.server.errors import NotFound
from plait.server.principal import Principal


class CheckpointActions:
    """Every method raises NotFound unless the checkpoint is there and the tenant's own."""

    def __init__(self, database: Database, store: CheckpointStore) -> None:
        self._database, self._store = database, store

    async def delete(self, who: Principal, path: str) -> None:
        row = await self._change(who, path, Action.CHECKPOINT_DELETE, lambda session, row: session.delete(row))
        await self._store.remove_folder(row.folder)

    async def set_public(self, who: Principal, path: str, public: bool) -> None:
        """Again: nothing. (The SDK would repeat a 409 for minutes.)"""
        action = Action.CHECKPOINT_PUBLISH if public else Action.CHECKPOINT_UNPUBLISH

        def change(session: Session, row: Checkpoint) -> None:
            row.public = public

        await self._change(who, path, action, change)

    async def set_ttl(self, who: Principal, path: str, ttl_s: int | None) -> None:
        """From now on; None: it never expires."""

        def change(session: Session, row: Checkpoint) -> None:
            row.expires_s = None if ttl_s is None else time.time() + ttl_s

        await self._change(who, path, Action.CHECKPOINT_SET_TTL, change, ttl_seconds=ttl_s)

    async def _change(
        self,
        who: Principal,
        path: str,
        action: Action,
        change: Callable[[Session, Checkpoint], None],
        ttl_seconds: int | None = None,
    ) -> Checkpoint:
        detail = {"ttl_seconds": ttl_seconds} if action == Action.CHECKPOINT_SET_TTL else {}

        def work(session: Session) -> Checkpoint:
            row = checkpoints.get_checkpoint(session, path, who.tenant_id, time.time())
            if row is None or row.tenant_id != who.tenant_id:
                raise NotFound("checkpoint", path)
            change(session, row)
            add(session, who, action, path, **detail)
            return row

        return await self._database.run(work)
