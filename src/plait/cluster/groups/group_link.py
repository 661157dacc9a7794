"""The controller's handle on a group, whatever carries it."""

import asyncio
import logging
import shutil
from collections.abc import Callable

import msgspec

from plait.cluster.client import thread_variables
from plait.cluster.executors.carrier import Carrier, Executor, WorkerProgram
from plait.cluster.groups.messages import ConfigureGroup, FromGroup, GroupReady, ToGroup, from_group, to_group
from plait.types.errors import WorkerFailure

GROUP_MODULE = "plait.cluster.groups.group_worker"

log = logging.getLogger("plait.cluster")


class GroupLink:
    """`on_frame` and `on_lost` are called in the event loop; after `on_lost` nothing more comes."""

    def __init__(
        self,
        carrier: Carrier,
        settings: ConfigureGroup,
        on_frame: Callable[[FromGroup], None],
        on_lost: Callable[[WorkerFailure], None],
    ) -> None:
        self._carrier, self._settings, self._on_frame, self._on_lost = carrier, settings, on_frame, on_lost
        self._outbox: asyncio.Queue[bytes] = asyncio.Queue()
        self._reader = asyncio.create_task(self._read())
        self._writer = asyncio.create_task(self._write())

    @classmethod
    async def start(
        cls,
        executor: Executor,
        settings: ConfigureGroup,
        on_frame: Callable[[FromGroup], None],
        on_lost: Callable[[WorkerFailure], None],
    ) -> "GroupLink":
        """Start it; raise PlaitError if it does not come up."""
        carrier = await executor.start(WorkerProgram(settings.name, GROUP_MODULE, thread_variables(settings.threads)))
        try:
            await carrier.send(to_group.encode(settings))
            ready = from_group.decode(await carrier.receive())
        except BaseException:
            await carrier.close()
            raise
        assert isinstance(ready, GroupReady)
        return cls(carrier, settings, on_frame, on_lost)

    @property
    def pid(self) -> int:
        return self._carrier.pid

    def send(self, frame: ToGroup) -> None:
        self._outbox.put_nowait(to_group.encode(frame))

    async def _read(self) -> None:
        try:
            while True:
                self._on_frame(await self._decode(await self._carrier.receive()))
        except WorkerFailure as failure:
            self._writer.cancel()
            self._on_lost(failure)

    async def _decode(self, data: bytes) -> FromGroup:
        try:
            return from_group.decode(data)
        except msgspec.MsgspecError as error:
            self._carrier.kill()  # It is alive, and must not go on beside its replacement.
            await self._carrier.close()
            raise WorkerFailure(f"worker group {self._settings.name} sent a frame that cannot be read: {error}") from error

    async def _write(self) -> None:
        try:
            while True:
                await self._carrier.send(await self._outbox.get())
        except WorkerFailure:
            return  # The reader tells.
        except ValueError:  # Too long a frame. Without it nothing that follows makes sense.
            log.exception("worker group %s is ended, since a frame cannot be sent to it", self._settings.name)
            self._carrier.kill()

    async def close(self) -> None:
        """End the process; what it has made durable stays, and what it had put away goes."""
        self._writer.cancel()
        self._reader.cancel()
        await self._carrier.close()
        if self._settings.disk_bytes:
            await asyncio.to_thread(shutil.rmtree, self._settings.folder, ignore_errors=True)
