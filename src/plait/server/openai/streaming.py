"""Answers over HTTP: whole or as server-sent events, and ended as soon as nobody listens."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing

from fastapi import Request, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel
from starlette.types import Receive, Scope, Send

from plait.server.openai.endpoint import Answer
from plait.server.openai.errors import error_json, error_object, unforeseen
from plait.types.errors import PlaitError

CLIENT_CLOSED_REQUEST = 499
"""Nobody reads it; nginx's number, for logs."""

log = logging.getLogger("plait.server")


async def respond(answer: Answer, is_stream: bool, request: Request) -> Response:
    if is_stream:
        return EventStream(answer)
    content = await _unless_disconnected(answer, request)
    return Response(status_code=CLIENT_CLOSED_REQUEST) if content is None else json_response(content)


def json_response(content: BaseModel) -> Response:
    return Response(to_json(content), media_type="application/json")


def to_json(content: BaseModel) -> str:
    return content.model_dump_json(exclude_unset=True)


async def _unless_disconnected(answer: Answer, request: Request) -> BaseModel | None:
    """None: the client went away."""
    work: asyncio.Task[BaseModel] = asyncio.create_task(answer.whole())
    gone = asyncio.create_task(_disconnected(request))
    try:
        await asyncio.wait((work, gone), return_when=asyncio.FIRST_COMPLETED)
        return await work if work.done() else None
    finally:
        gone.cancel()
        work.cancel()
        answer.generation.cancel()


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


class EventStream(StreamingResponse):
    def __init__(self, answer: Answer) -> None:
        super().__init__(_events(answer), media_type="text/event-stream", headers={"cache-control": "no-cache"})
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Starlette cancels the stream when the client goes; what runs in the engine goes with it, wherever that happens."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._answer.generation.cancel()


async def _events(answer: Answer) -> AsyncGenerator[str, None]:
    try:
        async with aclosing(answer.parts()) as parts:
            async for part in parts:
                yield f"data: {to_json(part)}\n\n"
    except PlaitError as error:
        yield f"data: {error_json(error_object(error))}\n\n"
    except Exception as error:
        log.exception("a stream failed")
        yield f"data: {error_json(unforeseen(error))}\n\n"
    else:
        yield "data: [DONE]\n\n"
