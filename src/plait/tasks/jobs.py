"""What tasks have going on in the event loop: each job belongs to one task and cannot harm another's."""

import asyncio
import traceback
from collections.abc import Callable, Coroutine
from typing import Any

from plait.types.errors import PlaitError

OnFailure = Callable[[str, str], None]
"""(task, cause): a job of the task failed."""


class TaskJobs:
    def __init__(self, on_failure: OnFailure) -> None:
        self._on_failure = on_failure
        self._jobs: dict[str, set[asyncio.Task[None]]] = {}

    def start(self, task: str, work: Coroutine[Any, Any, None]) -> None:
        job = asyncio.create_task(self._guarded(task, work))
        jobs = self._jobs.setdefault(task, set())
        jobs.add(job)
        job.add_done_callback(jobs.discard)

    async def _guarded(self, task: str, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except PlaitError as error:
            self._on_failure(task, str(error))
        except Exception as error:
            self._on_failure(task, "".join(traceback.format_exception(error)).strip())

    def cancel(self, task: str) -> None:
        """Cancel what the task runs, except the job that asks."""
        current = asyncio.current_task()
        for job in list(self._jobs.get(task, ())):
            if job is not current:
                job.cancel()

    async def close(self) -> None:
        jobs = [job for group in self._jobs.values() for job in group]
        for job in jobs:
            job.cancel()
        await asyncio.gather(*jobs, return_exceptions=True)
