"""Data that tenants upload for their tasks: JSONL files, each under a name of its tenant. An upload never changes."""

import asyncio
import json
import secrets
import shutil
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import IO

from sqlalchemy.orm import Session

from plait.server.database import managed
from plait.server.database.checkpoints import stored_bytes
from plait.server.database.database import Database
from plait.server.database.tables import Upload
from plait.server.errors import NotFound, ServiceError, TooMany
from plait.server.folders import DataFolders
from plait.state.durable import make_folder, replace_file
from plait.types.errors import ConfigError

MAX_UPLOAD_BYTES = 256 * 2**20
MEMORY_BYTES = 2**20
FILE_NAME = "data.jsonl"
LIST_LIMIT = 1000


class Uploads:
    """`limit_of` a tenant: the most bytes that it may store, or None. `users_of(tenant, name)`: unfinished runs that read it."""

    def __init__(
        self,
        database: Database,
        folders: DataFolders,
        limit_of: Callable[[str], int | None],
        users_of: Callable[[str, str], Sequence[str]],
    ) -> None:
        self._database, self._folders, self._limit_of, self._users_of = database, folders, limit_of, users_of

    async def add(self, tenant_id: str, name: str, content: AsyncIterator[bytes]) -> Upload:
        """Raises ServiceError if the name is taken or the content is no JSONL, TooMany if it is more than may be stored."""
        await self._check_free(tenant_id, name)
        room = await self._room(tenant_id)
        with SpooledTemporaryFile(MEMORY_BYTES) as file:
            size_bytes = await _receive(content, file, room)
            await asyncio.to_thread(check_lines, file)
            upload_id = f"upload-{secrets.token_hex(8)}"
            folder = self._folders.uploads(tenant_id) / upload_id
            await asyncio.to_thread(_store, folder, file)
        row = Upload(
            upload_id=upload_id, tenant_id=tenant_id, name=name, folder=str(folder), size_bytes=size_bytes, created_s=time.time()
        )
        try:
            return await self._database.run(lambda session: _add(session, row))
        except BaseException:
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
            raise

    async def _check_free(self, tenant_id: str, name: str) -> None:
        if await self.find(tenant_id, name) is not None:
            raise _taken(name)

    async def _room(self, tenant_id: str) -> int:
        limit = self._limit_of(tenant_id)
        if limit is None:
            return MAX_UPLOAD_BYTES
        return min(MAX_UPLOAD_BYTES, limit - await self._database.run(lambda session: stored_bytes(session, tenant_id)))

    async def find(self, tenant_id: str, name: str) -> Upload | None:
        return await self._database.run(lambda session: managed.get_upload_named(session, name, tenant_id))

    async def files(self, tenant_id: str, names: Sequence[str]) -> dict[str, str]:
        """Where each upload's file lies. Raises ConfigError for the first that is not there."""
        found: dict[str, str] = {}
        for name in names:
            row = await self.find(tenant_id, name)
            if row is None:
                raise ConfigError(
                    f'environment.path = "upload:{name}": you have no such upload.', "POST /v1/uploads?name=... first."
                )
            found[name] = str(Path(row.folder) / FILE_NAME)
        return found

    async def list(self, tenant_id: str, limit: int, offset: int) -> tuple[list[Upload], int]:
        return await self._database.run(lambda session: managed.list_uploads(session, tenant_id, limit, offset))

    async def delete(self, tenant_id: str, name: str) -> None:
        """Raises NotFound, or ServiceError while an unfinished run reads it."""
        row = await self.find(tenant_id, name)
        if row is None:
            raise NotFound("upload", name)
        if users := self._users_of(tenant_id, name):
            raise ServiceError(f"upload {name!r} is used by {', '.join(users)}.", "Wait for their end, or cancel them.")
        await self._database.run(lambda session: managed.delete_upload(session, row.upload_id, tenant_id))
        await asyncio.to_thread(shutil.rmtree, Path(row.folder), ignore_errors=True)


async def _receive(content: AsyncIterator[bytes], file: IO[bytes], room: int) -> int:
    size_bytes = 0
    async for part in content:
        size_bytes += len(part)
        if size_bytes > room:
            raise TooMany(
                f"the upload is above {max(room, 0)} bytes, which is all that this tenant may store now.",
                "Delete uploads or checkpoints, or ask the operator for a higher quota of stored_bytes.",
            )
        file.write(part)
    return size_bytes


def check_lines(file: IO[bytes]) -> None:
    """Raises ServiceError unless every line is one JSON object, and there is one."""
    file.seek(0)
    number = 0
    for number, line in enumerate(file, 1):
        try:
            is_object = not line.strip() or isinstance(json.loads(line.decode()), dict)
        except (ValueError, RecursionError):
            is_object = False
        if not is_object:
            raise ServiceError(f"line {number} is not a JSON object.", "Send JSON Lines: one object in each line.")
    if not number:
        raise ServiceError("the upload is empty.", "Send JSON Lines: one object in each line.")


def _store(folder: Path, file: IO[bytes]) -> None:
    file.seek(0)
    make_folder(folder)
    replace_file(folder / FILE_NAME, file.read())


def _add(session: Session, row: Upload) -> Upload:
    if managed.get_upload_named(session, row.name, row.tenant_id) is not None:
        raise _taken(row.name)
    return managed.add_upload(session, row)


def _taken(name: str) -> ServiceError:
    return ServiceError(f"there is an upload {name!r} already.", "Delete it first, or choose another name.")
