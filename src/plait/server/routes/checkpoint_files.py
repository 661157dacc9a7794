"""The files of a checkpoint, of any kind, for who may read it."""

import asyncio
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import FileResponse

from plait.server.audit import Action
from plait.server.errors import NotFound
from plait.server.external_files import files_in
from plait.server.routes.dependencies import PrincipalOf, ServiceOf
from plait.server.wire.models.administration import CheckpointFile, CheckpointFilesResponse

router = APIRouter(prefix="/v1/checkpoint_files", tags=["checkpoints"])
TinkerPathQuery = Annotated[str, Query(max_length=1024)]


@router.get("")
async def list_files(path: TinkerPathQuery, service: ServiceOf, principal: PrincipalOf) -> CheckpointFilesResponse:
    """Of the checkpoint `path`, a tinker:// address: an adapter in PEFT format and, where it has one, the optimizer's state."""
    row = await service.checkpoints.get(path, principal.tenant_id)
    found = await asyncio.to_thread(_sizes, Path(row.folder))
    await service.audit.tell(principal, Action.CHECKPOINT_READ, row.tinker_path, purpose="files")
    return CheckpointFilesResponse(tinker_path=row.tinker_path, base_model=row.base_model, version=row.version, files=found)


@router.get("/{name:path}", response_class=FileResponse)
async def read_file(name: str, path: TinkerPathQuery, service: ServiceOf, principal: PrincipalOf) -> FileResponse:
    row = await service.checkpoints.get(path, principal.tenant_id)
    folder = Path(row.folder)
    if name not in await asyncio.to_thread(files_in, folder):
        raise NotFound("file", name)
    return FileResponse(folder / name, media_type="application/octet-stream")


def _sizes(folder: Path) -> list[CheckpointFile]:
    return [CheckpointFile(name=name, size_bytes=(folder / name).stat().st_size) for name in files_in(folder)]
