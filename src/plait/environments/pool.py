"""Environments in a fixed number of killable processes.

- A call has a wall-clock limit of its own, from when a process takes it; waiting, starting and building do not count.
- A process whose call hangs or that dies is killed with all it started, and replaced; only that call fails.
- No more calls are out than there are processes; the rest wait here, and tasks take turns.
- Nothing blocks the event loop, nothing uses signals, and every call ends: in a result, or in a StageFailure.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, Generic, TypeVar

from plait.config.environments import AnyEnvironmentSettings, EnvironmentSettings
from plait.environments.calls import STAGES, AnyCall, EnvironmentInfo
from plait.environments.client import PooledEnvironment
from plait.environments.failure import StageFailure
from plait.environments.fair_queue import FairQueue
from plait.environments.worker import EnvironmentWorker
from plait.types.errors import ConfigError

Result = TypeVar("Result")


class _Job(Generic[Result]):
    def __init__(self, call: AnyCall, timeout_s: float, result_type: type[Result]) -> None:
        self.call = call
        self.timeout_s = timeout_s
        self.result_type = result_type
        self.done: asyncio.Future[Result] = asyncio.get_running_loop().create_future()


class EnvironmentPool:
    """Make one with `start`, end it with `close`."""

    def __init__(self, num_processes: int) -> None:
        self._settings_by_task: dict[str, EnvironmentSettings] = {}
        self._environments: dict[str, PooledEnvironment] = {}
        self._workers = [EnvironmentWorker(f"environment-{index}", self._settings_by_task) for index in range(num_processes)]
        self._jobs: FairQueue[_Job[Any]] = FairQueue()
        self._num_waiting = asyncio.Semaphore(0)
        self._idle = [asyncio.Lock() for _ in self._workers]
        self._closed = False
        self._serving = [asyncio.create_task(self._serve(index)) for index in range(num_processes)]

    @classmethod
    async def start(cls, settings_by_task: Mapping[str, AnyEnvironmentSettings], num_processes: int) -> "EnvironmentPool":
        """Build every task's environment in every process. Raises ConfigError or StageFailure for the first that cannot be."""
        pool = cls(num_processes)
        try:
            for task, settings in settings_by_task.items():
                await pool.add_task(task, settings)
        except BaseException:
            await pool.close()
            raise
        return pool

    async def add_task(self, task: str, settings: AnyEnvironmentSettings) -> PooledEnvironment:
        """Build one more task's environment; other tasks' calls go on."""
        if task in self._settings_by_task:
            raise ConfigError(f"The environment pool has a task {task!r} already.", "Give each task its own name.")
        self._settings_by_task[task] = settings
        prepared = await asyncio.gather(
            *(self._prepare(index, task) for index in range(len(self._workers))), return_exceptions=True
        )
        for outcome in prepared:
            if isinstance(outcome, BaseException):
                self._forget(task)
                raise outcome
        info = next(outcome for outcome in prepared if isinstance(outcome, EnvironmentInfo))
        self._environments[task] = PooledEnvironment(self, task, settings, info)
        return self._environments[task]

    def environment(self, task: str) -> PooledEnvironment:
        return self._environments[task]

    async def call(self, call: AnyCall, timeout_s: float, result_type: type[Result]) -> Result:
        """Have a process perform the call. A caller that is cancelled while it waits in the queue takes its call along."""
        if self._closed:
            raise _closed(call)
        job = _Job(call, timeout_s, result_type)
        self._jobs.push(call.task, job)
        self._num_waiting.release()
        return await job.done

    async def close(self) -> None:
        """Kill all processes; calls that have not ended fail."""
        self._closed = True
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)
        await asyncio.gather(*(worker.stop() for worker in self._workers))
        while len(self._jobs):
            job = self._jobs.pop()
            _fail(job, _closed(job.call))

    def _forget(self, task: str) -> None:
        del self._settings_by_task[task]
        for worker in self._workers:
            worker.forget(task)

    async def _prepare(self, index: int, task: str) -> EnvironmentInfo:
        async with self._idle[index]:
            return await self._workers[index].prepare(task)

    async def _serve(self, index: int) -> None:
        while True:
            await self._num_waiting.acquire()
            async with self._idle[index]:
                job = self._jobs.pop()
                if not job.done.done():
                    await self._perform(self._workers[index], job)

    async def _perform(self, worker: EnvironmentWorker, job: _Job[Any]) -> None:
        try:
            result = await worker.call(job.call, job.timeout_s, job.result_type)
        except StageFailure as failure:
            _fail(job, failure)
        except ConfigError as error:
            _fail(job, StageFailure(job.call.task, STAGES[type(job.call)], "error", error.message, error.remedy))
        except asyncio.CancelledError:
            _fail(job, _closed(job.call))
            raise
        except Exception as error:  # Whatever it is, it is the caller's: a server that ended would leave all others waiting.
            _fail(job, error)
        else:
            if not job.done.done():
                job.done.set_result(result)


def _fail(job: _Job[Any], failure: Exception) -> None:
    if not job.done.done():
        job.done.set_exception(failure)


def _closed(call: AnyCall) -> StageFailure:
    return StageFailure(call.task, STAGES[type(call)], "died", "the environment pool was closed")
