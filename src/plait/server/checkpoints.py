"""Checkpoints: their rows and their folders. A folder goes once its row is gone and no sampler reads it."""

import asyncio
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

from sqlalchemy.orm import Session

from plait.server.database import checkpoints, samplers
from plait.server.database.database import Database
from plait.server.database.tables import Checkpoint
from plait.server.errors import NotFound
from plait.server.folders import DataFolders
from plait.server.tinker_path import TinkerPath, parse_tinker_path


class CheckpointStore:
    def __init__(self, database: Database) -> None:
        self.database = database

    async def get(self, path: str, tenant_id: str) -> Checkpoint:
        """The tenant's own, or a public one. Raises NotFound, or ServiceError if `path` is none."""
        name = str(parse_tinker_path(path))
        row = await self.database.run(lambda session: checkpoints.get_checkpoint(session, name, tenant_id, time.time()))
        if row is None:
            raise NotFound("checkpoint", path)
        return row

    async def exists(self, path: TinkerPath, tenant_id: str) -> bool:
        row = await self.database.run(lambda session: checkpoints.get_checkpoint(session, str(path), tenant_id, time.time()))
        return row is not None

    async def stored_bytes(self, tenant_id: str) -> int:
        return await self.database.run(lambda session: checkpoints.stored_bytes(session, tenant_id))

    async def delete(self, path: str, tenant_id: str) -> None:
        name = str(parse_tinker_path(path))
        row = await self.database.run(lambda session: checkpoints.delete_checkpoint(session, name, tenant_id))
        if row is None:
            raise NotFound("checkpoint", path)
        await self.remove_folder(row.folder)

    async def remove_expired(self) -> None:
        rows = await self.database.run(lambda session: _delete_expired(session))
        for row in rows:
            await self.remove_folder(row.folder)

    async def remove_snapshots(self, session_ids: Sequence[str]) -> None:
        """Weights of the unnamed samplers of ended sessions, which nobody can name any more."""
        folders = await self.database.run(lambda session: samplers.delete_snapshots(session, session_ids))
        for folder in folders:
            await self.remove_folder(folder)

    async def remove_orphans(self, folders: DataFolders) -> None:
        """What a killed server left: folders that no row names. Only while no call runs, as a save's row comes after its folder."""
        used = await self.database.run(lambda session: checkpoints.all_folders(session) | samplers.folders_in_use(session))
        for folder in await asyncio.to_thread(folders.of_checkpoints):
            if str(folder) not in used:
                await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)

    async def remove_folder(self, folder: str) -> None:
        """Unless a sampler reads it."""
        used = await self.database.run(samplers.folders_in_use)
        if folder not in used:
            await asyncio.to_thread(shutil.rmtree, Path(folder), ignore_errors=True)


def _delete_expired(session: Session) -> list[Checkpoint]:
    rows = checkpoints.expired_checkpoints(session, time.time())
    for row in rows:
        session.delete(row)
    return rows
