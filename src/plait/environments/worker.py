"""One environment process as the pool sees it: started when needed, killed when a call hangs, never reused after that."""

import asyncio
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from plait.config.environments import EnvironmentSettings
from plait.environments.calls import STAGES, AnyCall, BuildCall, EnvironmentInfo, Raised, answer_codec, call_codec
from plait.environments.failure import FailureKind, StageFailure
from plait.transport.child import ChildProcess
from plait.types.errors import ConfigError, WorkerFailure

BUILD_TIMEOUT_S = 1800.0
"""Building may load libraries and fetch data sets; it never counts against a call's own limit."""
PROCESS_VARIABLES = {
    "PYTHONHASHSEED": "0",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
}
"""The same order of sets in every process, or generated questions differ between them; and one core each."""

Result = TypeVar("Result")


class EnvironmentWorker:
    """Serves one call at a time. `settings_by_task` is the pool's own, which may grow."""

    def __init__(self, name: str, settings_by_task: Mapping[str, EnvironmentSettings]) -> None:
        self._name = name
        self._settings_by_task = settings_by_task
        self._child: ChildProcess | None = None
        self._info_by_task: dict[str, EnvironmentInfo] = {}

    async def call(self, call: AnyCall, timeout_s: float, result_type: type[Result]) -> Result:
        """Raise StageFailure when it fails in any way; the process is then gone unless the environment merely raised."""
        await self.prepare(call.task)
        return await self._exchange(call, timeout_s, result_type)

    async def prepare(self, task: str) -> EnvironmentInfo:
        """Start the process and build the task's environment where that is not done. ConfigError if it cannot be built."""
        if self._child is None or self._child.exit_code is not None:
            await self._start(task)
        if task not in self._info_by_task:
            call = BuildCall(task=task, settings_json=self._settings_by_task[task].model_dump_json())
            self._info_by_task[task] = await self._exchange(call, BUILD_TIMEOUT_S, EnvironmentInfo)
        return self._info_by_task[task]

    def forget(self, task: str) -> None:
        """Build the task's environment anew before its next call."""
        self._info_by_task.pop(task, None)

    async def stop(self) -> None:
        self._info_by_task = {}
        child, self._child = self._child, None
        if child is not None:
            child.kill()
            await child.wait()

    async def _start(self, task: str) -> None:
        await self.stop()
        try:
            self._child = await ChildProcess.start("plait.environments.process", environment=PROCESS_VARIABLES, name=self._name)
        except OSError as error:
            raise StageFailure(task, "build", "died", f"its process cannot be started: {error}") from error

    async def _exchange(self, call: AnyCall, timeout_s: float, result_type: type[Result]) -> Result:
        assert self._child is not None
        try:
            async with asyncio.timeout(timeout_s):
                await self._child.send(call_codec.encode(call))
                message = await self._child.receive()
        except TimeoutError:
            raise await self._lost(call, "timeout", f"no answer within {timeout_s:g} s") from None
        except WorkerFailure as error:
            raise await self._lost(call, "died", error.message) from error
        except ValueError as error:  # A message that is too long: what follows on the link has no beginning.
            raise await self._lost(call, "error", str(error)) from error
        except asyncio.CancelledError:
            await self.stop()
            raise
        return _result(call, message, result_type)

    async def _lost(self, call: AnyCall, kind: FailureKind, cause: str) -> StageFailure:
        await self.stop()
        return StageFailure(call.task, STAGES[type(call)], kind, cause)


def _result(call: AnyCall, message: bytes, result_type: Any) -> Any:
    stage = STAGES[type(call)]
    try:
        answer = answer_codec.decode(message)
        if isinstance(answer, Raised):
            raise (
                ConfigError(answer.cause, answer.remedy)
                if answer.is_config_error
                else StageFailure(call.task, stage, "error", answer.cause)
            )
        return msgspec.msgpack.decode(answer.value, type=result_type)
    except msgspec.ValidationError as error:
        raise StageFailure(call.task, stage, "error", f"it returned something else than {result_type}: {error}") from error
