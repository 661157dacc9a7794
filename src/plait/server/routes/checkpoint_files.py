"""The files of a checkpoint, of any kind, for who may read it."""

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import FileResponse

from plait.server.audit import Action
from plait.server.checkpoint_files import open_file, sizes_in
from plait.server.errors import NotFound
from plait.server.open_file_response import OpenFileResponse
from plait.server.routes.dependencies import PrincipalOf, ServiceOf
from plait.server.wire.models.administration import CheckpointFile, CheckpointFilesResponse

router = APIRouter(prefix="/v1/checkpoint_files", tags=["checkpoints"])
TinkerPathQuery = Annotated[str, Query(max_length=1024)]


@router.get("")
async def list_files(path: TinkerPathQuery, service: ServiceOf, principal: PrincipalOf) -> CheckpointFilesResponse:
    """Of the checkpoint `path`, a tinker:// address: an adapter in PEFT format and, where it has one, the optimizer's state."""
    row, sizes = await service.checkpoints.read(path, principal.tenant_id, sizes_in)
    found = [CheckpointFile(name=name, size_bytes=size_bytes) for name, size_bytes in sizes.items()]
    await service.audit.tell(principal, Action.CHECKPOINT_READ, row.tinker_path, purpose="files")
    return CheckpointFilesResponse(tinker_path=row.tinker_path, base_model=row.base_model, version=row.version, files=found)


@router.get("/{name:path}", response_class=FileResponse)
async def read_file(name: str, path: TinkerPathQuery, service: ServiceOf, principal: PrincipalOf) -> FileResponse:
    _, file = await service.checkpoints.read(path, principal.tenant_id, partial(open_file, name=name))
    if file is None:
        raise NotFound("file", name)
    return OpenFileResponse(file)
