"""The controller's handle on one worker, whatever carries it."""

import asyncio
import logging
import os
from collections.abc import Callable

import msgspec

from plait.cluster.executors.carrier import Carrier, Executor, WorkerProgram
from plait.cluster.executors.process import ProcessExecutor
from plait.cluster.messages import Configure, FromWorker, Ready, StartFailed, Starting, ToWorker, from_worker, to_worker
from plait.types.errors import PlaitError, WorkerFailure

WORKER_MODULE = "plait.cluster.worker"
SPIN_COUNT = "20000"
KEPT_KERNELS = 256
"""About a megabyte each."""

log = logging.getLogger("plait.cluster")

OnMessage = Callable[[FromWorker], None]
OnLost = Callable[[WorkerFailure], None]


def thread_variables(threads: int) -> dict[str, str]:
    """Environment that must be set before torch loads.

    OpenMP threads that spin for long collapse when another process wants their core (45 ms became 2052 ms), and threads that sleep
    at once make a decode step of two threads take twice as long: they spin for about a millisecond.
    oneDNN keeps a compiled kernel for every shape it has met; training meets new ones at every step, so their number is bounded.
    """
    return {
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        "GOMP_SPINCOUNT": SPIN_COUNT,
        "ONEDNN_PRIMITIVE_CACHE_CAPACITY": str(KEPT_KERNELS),
        "TOKENIZERS_PARALLELISM": "false",
    }


class WorkerClient:
    """`on_message` and `on_lost` are called in the event loop; after `on_lost` nothing more comes.

    `executor` starts the worker; None: as a child process.
    """

    def __init__(self, settings: Configure, on_message: OnMessage, on_lost: OnLost, executor: Executor | None = None) -> None:
        self.settings, self._on_message, self._on_lost = settings, on_message, on_lost
        self._executor = executor or ProcessExecutor()
        self._carrier: Carrier | None = None
        self._reader: asyncio.Task[None] | None = None
        self._outbox: asyncio.Queue[bytes] = asyncio.Queue()
        self._writer: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int:
        assert self._carrier is not None
        return self._carrier.pid

    async def start(self) -> Ready:
        """Start the worker and load the model; raise PlaitError if it does not come up."""
        self._carrier = await self._executor.start(self._program())
        try:
            await self._carrier.send(to_worker.encode(self.settings))
            while isinstance(ready := from_worker.decode(await self._carrier.receive()), Starting):
                self._on_message(ready)
        except BaseException:
            await self._carrier.close()
            raise
        if isinstance(ready, StartFailed):
            await self._carrier.close()
            raise PlaitError(ready.message, ready.remedy)
        assert isinstance(ready, Ready)
        self._reader = asyncio.create_task(self._read())
        self._writer = asyncio.create_task(self._write())
        return ready

    def _program(self) -> WorkerProgram:
        lent = (os.cpu_count() or 1) if self.settings.lend_threads else 1
        variables = thread_variables(max(self.settings.threads, lent))
        return WorkerProgram(self.settings.name, WORKER_MODULE, variables, self.settings.python)

    def send(self, message: ToWorker) -> None:
        self._outbox.put_nowait(to_worker.encode(message))

    async def _read(self) -> None:
        assert self._carrier is not None
        try:
            while True:
                self._on_message(await self._decode(self._carrier, await self._carrier.receive()))
        except WorkerFailure as failure:
            self._stop_writer()
            self._on_lost(failure)

    async def _decode(self, carrier: Carrier, frame: bytes) -> FromWorker:
        try:
            return from_worker.decode(frame)
        except msgspec.MsgspecError as error:
            carrier.kill()  # It is alive, and must not go on beside its replacement.
            await carrier.close()
            raise WorkerFailure(f"worker {self.settings.name} sent a message that cannot be read: {error}") from error

    async def _write(self) -> None:
        assert self._carrier is not None
        try:
            while True:
                await self._carrier.send(await self._outbox.get())
        except WorkerFailure:
            return  # the reader tells
        except ValueError:  # Too long a message. Without it nothing that follows makes sense.
            log.exception("worker %s is ended, since a message cannot be sent to it", self.settings.name)
            self._carrier.kill()

    def _stop_writer(self) -> None:
        if self._writer is not None:
            self._writer.cancel()

    async def close(self) -> None:
        """End the worker; what it has made durable stays."""
        self._stop_writer()
        if self._reader is not None:
            self._reader.cancel()
        if self._carrier is not None:
            await self._carrier.close()
