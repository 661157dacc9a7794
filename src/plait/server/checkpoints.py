"""Checkpoints: their rows and their folders. A folder goes once its row is gone and no sampler reads it.

It loses its name before its first file goes, so who has looked at all of it, and finds it there still, has seen it whole.
"""

import asyncio
import contextlib
import logging
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar
from urllib.parse import unquote

from sqlalchemy.orm import Session

from plait.server.database import calls, checkpoints, samplers
from plait.server.database.database import Database
from plait.server.database.tables import Checkpoint
from plait.server.errors import NotFound
from plait.server.folders import DataFolders
from plait.server.tinker_path import TinkerPath, parse_tinker_path
from plait.state import durable
from plait.state.durable import TEMPORARY_PREFIX

T = TypeVar("T")
MAX_DIGITS = 12
"""Of a seq_id that any client has reached."""

log = logging.getLogger("plait.server")


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

    async def read(self, path: str, tenant_id: str, work: Callable[[Path], T]) -> tuple[Checkpoint, T]:
        """What `work` makes of the checkpoint's folder, in a thread; it raises FileNotFoundError if the folder goes meanwhile.

        Then what a save has put in its place is read. Raises NotFound if nothing has, or ServiceError if `path` is none.
        """
        row = await self.get(path, tenant_id)
        while True:
            try:
                return row, await asyncio.to_thread(work, Path(row.folder))
            except FileNotFoundError as error:
                before, row = row, await self.get(path, tenant_id)
                if row.folder == before.folder:
                    raise NotFound("checkpoint", path) from error

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
        """What a killed server left: temporaries, and what an ended save wrote and another has replaced.

        Only while no call runs. Nothing goes that this database knows nothing of: it may be new, or an older copy.
        """
        found = await asyncio.to_thread(folders.of_checkpoints)
        for folder in await self.database.run(lambda session: _orphans(session, found)):
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)

    async def remove_folder(self, folder: str) -> None:
        """Unless a sampler reads it."""
        used = await self.database.run(samplers.folders_in_use)
        if folder not in used:
            await asyncio.to_thread(_remove, Path(folder))


def _remove(folder: Path) -> None:
    """What cannot be removed is an orphan after the next start."""
    try:
        with contextlib.suppress(FileNotFoundError):
            durable.remove_folder(folder)
    except OSError as error:
        log.warning("%s cannot be removed: %s", folder, error)


def _delete_expired(session: Session) -> list[Checkpoint]:
    rows = checkpoints.expired_checkpoints(session, time.time())
    for row in rows:
        session.delete(row)
    return rows


def _orphans(session: Session, found: Sequence[Path]) -> list[Path]:
    used = {_place(Path(folder)) for folder in checkpoints.all_folders(session) | samplers.folders_in_use(session)}
    unnamed = [folder for folder in found if _place(folder) not in used]
    return [folder for folder in unnamed if folder.name.startswith(TEMPORARY_PREFIX) or _is_of_ended_save(session, folder)]


def _place(folder: Path) -> tuple[str, ...]:
    """Tenant, model, kind and name: the same wherever the data folder has been moved to."""
    return folder.parts[-5:]


def _is_of_ended_save(session: Session, folder: Path) -> bool:
    seq_id = folder.name.rpartition("@")[2]
    if not seq_id.isdecimal() or len(seq_id) > MAX_DIGITS:
        return False
    call = calls.get_call(session, unquote(folder.parents[1].name), int(seq_id))
    return call is not None and call.state != "pending"
