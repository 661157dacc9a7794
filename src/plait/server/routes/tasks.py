"""Managed tasks: sent as a task file, watched, steered, and taken away."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Annotated, Literal

from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.responses import FileResponse, StreamingResponse

from plait.server.audit import Action
from plait.server.errors import ServiceError
from plait.server.managed.adapter_files import MEDIA_TYPES, Format, pack_adapter
from plait.server.managed.views import RunList, RunView
from plait.server.open_file_response import OpenFileResponse
from plait.server.routes.dependencies import PrincipalOf, ServiceOf

router = APIRouter(prefix="/v1/tasks", tags=["tasks"])
COPY_BYTES = 2**20
ACTIONS = {"pause": Action.TASK_PAUSE, "resume": Action.TASK_RESUME, "cancel": Action.TASK_CANCEL}
MAX_TASK_FILE_BYTES = 2**20
NO_SCRIPTS_OF_OTHERS = {"content-security-policy": "sandbox allow-scripts", "x-content-type-options": "nosniff"}
TASK_FILE = {"requestBody": {"content": {"application/toml": {"schema": {"type": "string"}}}, "required": True}}
Limit = Annotated[int, Query(ge=1, le=1000)]
Offset = Annotated[int, Query(ge=0, le=2**31)]
TaskName = Annotated[str | None, Query(description="One task of the run; without it, all.")]


@router.post("", status_code=201, openapi_extra=TASK_FILE)
async def submit(request: Request, service: ServiceOf, principal: PrincipalOf) -> RunView:
    """Send the TOML of `plait run` (name, seed, tasks). Data sets are named `upload:NAME`."""
    view = await service.managed.submit(principal.tenant_id, await _text_of(request))
    await service.audit.tell(principal, Action.TASK_SUBMIT, view.run_id)
    return view


async def _text_of(request: Request) -> str:
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > MAX_TASK_FILE_BYTES:
            raise ServiceError(f"the task file is above {MAX_TASK_FILE_BYTES} bytes.", "Send fewer tasks at a time.")
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise ServiceError(f"the task file is not UTF-8 text: {error.reason}.", "Save it as UTF-8.") from error


@router.get("")
async def list_runs(service: ServiceOf, principal: PrincipalOf, limit: Limit = 50, offset: Offset = 0) -> RunList:
    return await service.managed.results.list(principal.tenant_id, limit, offset)


@router.get("/{run_id}")
async def show(run_id: str, service: ServiceOf, principal: PrincipalOf) -> RunView:
    return await service.managed.results.show(run_id, principal.tenant_id)


@router.get("/{run_id}/events", response_class=StreamingResponse)
async def events(
    run_id: str,
    service: ServiceOf,
    principal: PrincipalOf,
    last_event_id: Annotated[str | None, Header()] = None,
    follow: Annotated[bool, Query(description="Until the run ends; else what there is now.")] = True,
) -> Response:
    """Server-sent events, from the first one or after Last-Event-ID; 204 if there is none to come."""
    stream = await service.managed.results.events(run_id, principal.tenant_id, last_event_id, follow)
    if stream is None:
        return Response(status_code=204)
    return StreamingResponse(
        stream, media_type="text/event-stream", headers={"cache-control": "no-store", "x-accel-buffering": "no"}
    )


@router.post("/{run_id}/{action}")
async def act(
    run_id: str, action: Literal["pause", "resume", "cancel"], service: ServiceOf, principal: PrincipalOf, task: TaskName = None
) -> RunView:
    view = await service.managed.act(action, run_id, principal.tenant_id, task)
    await service.audit.tell(principal, ACTIONS[action], run_id, **({"task": task} if task else {}))
    return view


@router.get("/{run_id}/report", response_class=FileResponse)
async def report(run_id: str, service: ServiceOf, principal: PrincipalOf) -> FileResponse:
    """One HTML file."""
    file = await asyncio.to_thread(open, await service.managed.results.report(run_id, principal.tenant_id), "rb")
    return OpenFileResponse(file, media_type="text/html", headers=NO_SCRIPTS_OF_OTHERS)


@router.get("/{run_id}/adapter", response_class=StreamingResponse)
async def adapter(
    run_id: str,
    service: ServiceOf,
    principal: PrincipalOf,
    task: TaskName = None,
    step: Annotated[
        int | None, Query(ge=0, le=10**9, description="Without it the best by held-out score, else the latest.")
    ] = None,
    format: Format = "tar",
) -> StreamingResponse:
    """PEFT files of a version."""
    directory = await service.managed.results.directory(run_id, principal.tenant_id)
    name = await service.managed.results.task_name(run_id, principal.tenant_id, task)
    file, version = await asyncio.to_thread(pack_adapter, directory, name, step, format)
    headers = {"content-disposition": f'attachment; filename="{Path(name).name}-{version:06d}.{format}"'}
    return StreamingResponse(_parts(file), media_type=MEDIA_TYPES[format], headers=headers)


def _parts(file: IO[bytes]) -> Iterator[bytes]:
    with file:
        while part := file.read(COPY_BYTES):
            yield part
