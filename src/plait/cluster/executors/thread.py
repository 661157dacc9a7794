"""Workers in threads of the controller's own process: for notebooks and for debugging, where a breakpoint reaches them.

- They share one interpreter with the controller and with each other, so they take turns in Python; only what torch computes runs
  side by side. For speed use processes.
- torch's number of threads belongs to a thread; MKL's, and the seed of torch's global generator, belong to the process, and every
  worker sets them as it starts. Variables that must be set before torch loads are not set.
- A thread cannot be killed. A worker that hangs is left behind, and ends with the process.
"""

import asyncio
import importlib
import os
import threading
import traceback
from collections.abc import Callable
from typing import TypeVar

from plait.cluster.executors.carrier import Carrier, WorkerProgram
from plait.cluster.executors.memory_link import MemoryLink
from plait.types.errors import WorkerFailure

Value = TypeVar("Value")

END_TIMEOUT_S = 5.0
"""How long a worker may take to see that its link is closed."""


class ThreadCarrier:
    """Made in the event loop that will call it."""

    def __init__(self, program: WorkerProgram) -> None:
        self.pid = os.getpid()
        self._program = program
        self._loop = asyncio.get_running_loop()
        self._frames: asyncio.Queue[bytes | None] = asyncio.Queue()
        """None: the worker has ended, and nothing follows."""
        self._ended: asyncio.Future[str] = self._loop.create_future()
        """How, in words."""
        self._link = MemoryLink(self._post)
        self._thread = threading.Thread(target=self._run, name=f"plait-{program.name}", daemon=True)
        self._thread.start()

    async def send(self, message: bytes) -> None:
        if self._ended.done():
            raise self._failure()
        self._link.put(message)

    async def receive(self) -> bytes:
        return self._given(await self._frames.get())

    async def receive_all(self) -> list[bytes]:
        """All that has arrived, and at least one frame."""
        frames = [await self.receive()]
        while not self._frames.empty():
            if (frame := self._frames.get_nowait()) is None:
                self._frames.put_nowait(None)
                break
            frames.append(frame)
        return frames

    def kill(self) -> None:
        """It ends as soon as it looks at its link."""
        self._link.close()

    async def close(self) -> None:
        self._link.close()
        await asyncio.wait([self._ended], timeout=END_TIMEOUT_S)

    def _given(self, frame: bytes | None) -> bytes:
        if frame is None:
            self._frames.put_nowait(None)  # Whoever asks again hears the same.
            raise self._failure()
        return frame

    def _failure(self) -> WorkerFailure:
        return WorkerFailure(f"worker {self._program.name!r} (a thread of process {self.pid}) {self._ended.result()}")

    # ---- the worker's thread

    def _run(self) -> None:
        try:
            importlib.import_module(self._program.module).serve(self._link)
            how = "has ended."
        except EOFError as error:
            how = f"has ended: {error}."
        except BaseException:
            how = f"failed:\n{traceback.format_exc()}"
        self._in_loop(self._end, how)

    def _post(self, frame: bytes) -> None:
        if not self._in_loop(self._frames.put_nowait, frame):
            raise EOFError("the controller's event loop is closed")

    def _in_loop(self, call: Callable[[Value], None], argument: Value) -> bool:
        try:
            self._loop.call_soon_threadsafe(call, argument)
        except RuntimeError:  # The loop is closed.
            return False
        return True

    def _end(self, how: str) -> None:
        self._ended.set_result(how)
        self._frames.put_nowait(None)


class ThreadExecutor:
    async def start(self, program: WorkerProgram) -> Carrier:
        return ThreadCarrier(program)

    async def close(self) -> None:
        """Each thread ends with its own carrier."""
