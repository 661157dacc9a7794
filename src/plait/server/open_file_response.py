"""Answers with files that may be removed or replaced while they are sent: open already, so each is sent to its end."""

import os
from typing import Any, BinaryIO

from fastapi.responses import FileResponse
from starlette.types import Receive, Scope, Send


class OpenFileResponse(FileResponse):
    """Of a file that is open, which it closes. `more`: as a FileResponse takes it."""

    def __init__(self, file: BinaryIO, media_type: str = "application/octet-stream", **more: Any) -> None:
        self._file = file
        number = file.fileno()
        super().__init__(f"/dev/fd/{number}", media_type=media_type, stat_result=os.fstat(number), **more)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._file:
            await super().__call__(scope, receive, send)
