"""What runs on a node of a Ray cluster: an actor whose process carries one worker, in a thread beside the actor's event loop.

Importable without Ray. The actor's process has the program's variables before torch loads, and ends with the driver.
"""

import contextlib
import os
import socket
from collections.abc import Sequence

import msgspec

import plait
from plait.cluster.executors.carrier import WorkerProgram
from plait.cluster.executors.shared_folder import FolderProbe, find_problem
from plait.cluster.executors.thread import ThreadCarrier
from plait.types.errors import WorkerFailure


class Started(msgspec.Struct, frozen=True):
    pid: int
    host: str
    node: str
    """Ray's id of it; empty outside Ray."""
    version: str
    """Of Plait."""
    problem: str = ""
    """Why this node cannot be used; the worker was not started."""


class WorkerActor:
    """One caller at a time: a frame's number is how many came before it."""

    def __init__(self, program: WorkerProgram, probe: FolderProbe | None) -> None:
        self._program, self._probe = program, probe
        self._carrier: ThreadCarrier | None = None
        self._num_delivered = 0

    async def start(self) -> Started:
        problem = find_problem(self._probe) if self._probe is not None else ""
        if not problem:
            self._carrier = ThreadCarrier(self._program)
        return Started(os.getpid(), socket.gethostname(), node_id(), plait.__version__, problem)

    async def deliver(self, number: int, frames: Sequence[bytes]) -> None:
        """Frames from the one with this number on. What was delivered before is passed over."""
        assert self._carrier is not None
        for frame in frames[max(0, self._num_delivered - number) :]:
            self._num_delivered += 1
            with contextlib.suppress(WorkerFailure):  # `collect` tells.
                await self._carrier.send(frame)

    async def collect(self) -> tuple[list[bytes], str]:
        """Wait for frames of the worker; none, and in words why, once it has ended."""
        assert self._carrier is not None
        try:
            return await self._carrier.receive_all(), ""
        except WorkerFailure as failure:
            return [], failure.message

    async def end(self) -> None:
        if self._carrier is not None:
            await self._carrier.close()


def node_id() -> str:
    import ray

    return ray.get_runtime_context().get_node_id() if ray.is_initialized() else ""
