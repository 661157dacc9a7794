"""Copies of checkpoints: a run of their own that cannot be trained, with bytes shared with the source where the disk can.

- The copy outlives its source: each has a link to the bytes.
- A repeated request (the same idempotency key, or the same place) gives the first copy.
- A source that goes meanwhile leaves no copy, and a copy that fails leaves no files.
"""

import asyncio
import hashlib
import os
import secrets
import shutil
import time
from pathlib import Path

from sqlalchemy.orm import Session

from plait.server.audit import Action, add
from plait.server.checkpoints import CheckpointStore
from plait.server.database import checkpoints, models, sessions
from plait.server.database.database import Database
from plait.server.database.errors import AlreadyThere
from plait.server.database.tables import Checkpoint, ClientSession, Model
from plait.server.errors import NotFound, ServiceError
from plait.server.folders import DataFolders
from plait.server.names import model_id_of, new_session_id
from plait.server.principal import Principal
from plait.server.saving import StoredLimit
from plait.server.tinker_path import SEGMENTS, TinkerPath
from plait.server.wire.models.checkpoints import CopyWeightsRequest

COPIED = "copied"
"""Why a session ended that only holds a copy."""


class WeightsCopier:
    def __init__(self, database: Database, store: CheckpointStore, folders: DataFolders, limit: StoredLimit) -> None:
        self._database, self._store, self._folders, self._limit = database, store, folders, limit

    async def copy(self, who: Principal, request: CopyWeightsRequest, idempotency_key: str | None) -> str:
        """The path of the copy. Raises NotFound, or ServiceError if the place is taken."""
        source = await self._store.get(request.source_path, who.tenant_id)
        session_id = request.session_id or _session_id(who, idempotency_key)
        path = TinkerPath(model_id_of(session_id, request.model_seq_id or 0), source.kind, source.name)
        if await self._is_copied(who, source, path):
            return str(path)
        await self._limit.check(who.tenant_id)
        folder = self._folders.checkpoint(who.tenant_id, path.model_id, SEGMENTS[path.kind], f"{path.name}@{secrets.token_hex(6)}")
        try:
            source, _ = await self._store.read(request.source_path, who.tenant_id, lambda found: link_folder(found, folder))
            await self._database.run(lambda session: _store_copy(session, who, request, session_id, path, source.folder, folder))
        except BaseException as error:
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
            if not isinstance(error, AlreadyThere) or not await self._is_copied(who, source, path):
                raise
        return str(path)

    async def _is_copied(self, who: Principal, source: Checkpoint, path: TinkerPath) -> bool:
        """Raises ServiceError if another run has the place."""
        model = await self._database.run(lambda session: models.get_model(session, path.model_id, None))
        if model is None:
            return False
        if model.tenant_id == who.tenant_id and await self._store.exists(path, who.tenant_id):
            copy = await self._store.get(str(path), who.tenant_id)
            if copy.digest == source.digest and model.state == "closed":
                return True
        raise ServiceError(f"there is a training run {path.model_id!r} already.", "Give the copy another model_seq_id.")


def link_folder(source: Path, target: Path) -> None:
    """A second name for each file; a copy of it where the file system has no such thing. FileNotFoundError if `source` goes."""
    try:
        shutil.copytree(source, target, copy_function=_link)
        source.stat()  # It loses its name before any file of it goes.
    except (shutil.Error, OSError):
        shutil.rmtree(target, ignore_errors=True)
        source.stat()
        raise


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except FileNotFoundError:
        raise
    except OSError:
        shutil.copy2(source, target)


def _session_id(who: Principal, idempotency_key: str | None) -> str:
    if not idempotency_key:
        return new_session_id()
    return hashlib.sha256(f"{COPIED}\0{who.tenant_id}\0{idempotency_key}".encode()).hexdigest()[:32]


def _store_copy(
    session: Session,
    who: Principal,
    request: CopyWeightsRequest,
    session_id: str,
    path: TinkerPath,
    source_folder: str,
    folder: Path,
) -> None:
    now_s = time.time()
    source = checkpoints.get_checkpoint(session, request.source_path, who.tenant_id, now_s)
    if source is None or source.folder != source_folder:
        raise NotFound("checkpoint", request.source_path, "It was deleted or replaced meanwhile.")
    if request.session_id is None:
        sessions.add_session(session, _session(who, request, session_id, now_s))
    source_run = models.get_model(session, source.model_id, None)
    models.add_model(session, _run(who, source, source_run, session_id, path.model_id, now_s))
    row = Checkpoint(
        tinker_path=str(path), tenant_id=who.tenant_id, model_id=path.model_id, kind=source.kind, name=source.name,
        folder=str(folder), digest=source.digest, size_bytes=source.size_bytes, base_model=source.base_model, lora=source.lora,
        created_s=now_s, version=source.version, has_optimizer=source.has_optimizer, user_metadata=source.user_metadata,
        expires_s=None if request.ttl_seconds is None else now_s + request.ttl_seconds,
    )  # fmt: skip
    checkpoints.add_checkpoint(session, row)
    add(session, who, Action.CHECKPOINT_COPY, str(path), source_path=request.source_path)


def _session(who: Principal, request: CopyWeightsRequest, session_id: str, now_s: float) -> ClientSession:
    return ClientSession(
        session_id=session_id, tenant_id=who.tenant_id, created_s=now_s, heartbeat_s=now_s, ended_s=now_s, end_reason=COPIED,
        display_name=f"copy of {request.source_path}", project_id=request.destination_project_id,
    )  # fmt: skip


def _run(who: Principal, source: Checkpoint, run: Model | None, session_id: str, model_id: str, now_s: float) -> Model:
    """Its metadata too: clients read from it how to render prompts."""
    return Model(
        model_id=model_id, session_id=session_id, tenant_id=who.tenant_id, base_model=source.base_model, lora=source.lora,
        created_s=now_s, last_request_s=now_s, state="closed", user_metadata=run.user_metadata if run is not None else None,
    )  # fmt: skip
