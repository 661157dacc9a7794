"""Work that nobody waits for: kept from the garbage collector, its errors told in the log, ended with the service."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

log = logging.getLogger("plait.server")


class Background:
    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("work in the background failed", exc_info=error)

    async def close(self) -> None:
        """Wait for what was begun."""
        await asyncio.gather(*self._tasks, return_exceptions=True)
