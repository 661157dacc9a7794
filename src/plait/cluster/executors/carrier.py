"""What the controller needs of whatever carries a worker, and what a worker needs of its link.

- A worker program is a module with `serve(link)`, which returns when the controller is gone. As the main module of a process it
  takes the link from its command line.
- Frames arrive in the order in which they were sent, each once, or the worker counts as lost.
- A loss is told by `receive`, as WorkerFailure. A lost worker is never resumed: its replacement is another carrier, with an empty
  link.
"""

from collections.abc import Mapping
from typing import Protocol

import msgspec


class WorkerProgram(msgspec.Struct, frozen=True):
    name: str
    """As in errors and in the settings."""
    module: str
    environment: Mapping[str, str] = {}
    """Variables that must be set before torch loads. A thread has those of its process instead."""
    python: str = ""
    """Interpreter of a process; empty: the controller's own."""


class WorkerNeeds(msgspec.Struct, frozen=True):
    """What a worker takes of the node it runs on."""

    cpus: int
    gpus: int = 0


class WorkerLink(Protocol):
    """The worker's side. `send` may be called by any thread, `receive` by one."""

    def send(self, message: bytes) -> None:
        """Raise EOFError when the controller is gone."""
        ...

    def receive(self, timeout_s: float | None = None) -> bytes | None:
        """The next frame; None when there is none within `timeout_s` (0 polls, None waits for ever).

        Raise EOFError when the controller is gone.
        """
        ...


class Carrier(Protocol):
    """The controller's side of one worker that was started."""

    @property
    def pid(self) -> int:
        """Of its process, on whatever machine that is."""
        ...

    async def send(self, message: bytes) -> None:
        """Raise WorkerFailure once the worker is lost."""
        ...

    async def receive(self) -> bytes:
        """Raise WorkerFailure once the worker is lost and no frame is left. May be cancelled at any time."""
        ...

    def kill(self) -> None:
        """End the worker at once, whatever it does. Harmless when it has ended."""
        ...

    async def close(self) -> None:
        """Close the link, by which the worker knows that it is to end, and see to it that it does."""
        ...


class Executor(Protocol):
    async def start(self, program: WorkerProgram) -> Carrier:
        """Start it; what it says is up to `receive`. Raise PlaitError when it cannot be."""
        ...

    async def close(self) -> None:
        """After all carriers are closed."""
        ...
