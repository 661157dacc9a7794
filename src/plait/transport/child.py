"""The controller's side of a link to a child process: asyncio.

- A child runs MODULE as `python -m MODULE --link-fd N ARGUMENTS` does (through `plait.transport.program`), and imports what its
  parent can import; nothing depends on `__main__`.
- It leads a process group of its own, which is killed as a whole; nothing the child started outlives it.
- What it prints (both streams) is kept as a bounded tail, for errors, and never mixes with the controller's output.
- `receive` and `send` raise WorkerFailure, with exit code and tail, once the child is gone. `receive` may be cancelled at any time.
"""

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from subprocess import DEVNULL, PIPE, STDOUT
from typing import cast

from plait.transport.frames import HEADER, check_length, encode_frame
from plait.types.errors import WorkerFailure

PROGRAM = "plait.transport.program"
"""Runs the module that its arguments name, with a quick start."""
OUTPUT_TAIL_BYTES = 8192
"""As much of a child's output as an error message may need."""
EXIT_GRACE_S = 2.0
"""How long a child that closed its link may take to exit before it is killed."""
OUTPUT_GRACE_S = 1.0
"""How long to wait for the last output of a child that has ended: a process that left its group may hold the stream open."""


class ChildProcess:
    """One child process and the link to it. Make one with `start`; a child that ended has an `exit_code`."""

    def __init__(self, name: str, process: "_Process", reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.name = name
        self.pid = process.pid
        self._process = process
        self._reader = reader
        self._writer = writer
        self._next_length: int | None = None

    @classmethod
    async def start(
        cls,
        module: str,
        arguments: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        name: str = "",
        python: str = "",
    ) -> "ChildProcess":
        """Start `module`; `environment` is added to the controller's own variables.

        `python` is another interpreter, which has to have the module installed; empty: the controller's own.
        """
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        with theirs:
            try:
                process = await _spawn(python, module, arguments, environment or {}, theirs.fileno())
            except BaseException:
                ours.close()
                raise
        try:
            reader, writer = await asyncio.open_connection(sock=ours)
        except BaseException:
            process.kill_group()
            ours.close()
            raise
        return cls(name or module, process, reader, writer)

    @property
    def exit_code(self) -> int | None:
        """None while it runs; minus the signal's number when a signal ended it."""
        return self._process.exited.result() if self._process.exited.done() else None

    @property
    def output_tail(self) -> str:
        return self._process.output.decode(errors="replace")

    async def send(self, message: bytes) -> None:
        """Raises ValueError for a message that is too long; nothing of it is sent."""
        frame = encode_frame(message)
        try:
            self._writer.write(frame)
            await self._writer.drain()
        except ConnectionError as error:
            raise await self._failure() from error

    async def receive(self) -> bytes:
        try:
            if self._next_length is None:
                header = await self._reader.readexactly(HEADER.size)
                self._next_length = check_length(HEADER.unpack(header)[0])
            message = await self._reader.readexactly(self._next_length)
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            raise await self._failure() from error
        except ValueError as error:  # What follows cannot be told apart.
            self.kill()
            raise WorkerFailure(f"worker {self.name!r} (process {self.pid}) sent no frame: {error}") from error
        self._next_length = None
        return message

    def kill(self) -> None:
        """End the child and all it started, at once. Harmless when it has ended."""
        if self.exit_code is None:
            self._process.kill_group()

    async def wait(self) -> int:
        """Wait for the child to end; return its exit code. May be cancelled, and called again."""
        exit_code = await asyncio.shield(self._process.exited)
        self._writer.close()
        await asyncio.wait([self._process.output_ended], timeout=OUTPUT_GRACE_S)
        self._process.transport.close()
        return exit_code

    async def close(self, timeout_s: float = 5.0) -> None:
        """Close the link, by which the child knows that it is to end; kill it if that takes longer than `timeout_s`."""
        self._writer.close()
        try:
            await asyncio.wait_for(self.wait(), timeout_s)
        except TimeoutError:
            self.kill()
            await self.wait()
        except asyncio.CancelledError:
            self.kill()
            raise

    async def _failure(self) -> WorkerFailure:
        await self.close(EXIT_GRACE_S)
        tail = self.output_tail.strip()
        output = f"Its last output:\n{tail}" if tail else "It printed nothing."
        return WorkerFailure(f"worker {self.name!r} (process {self.pid}) ended with {describe_exit(await self.wait())}. {output}")


class _Process(asyncio.SubprocessProtocol):
    """What the event loop reports of the operating system's process.

    asyncio's own `Process.wait` also waits for the output to end, which anything the child started may hold open.
    """

    transport: asyncio.SubprocessTransport

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.pid = 0
        self.output = bytearray()
        self.exited: asyncio.Future[int] = loop.create_future()
        self.output_ended: asyncio.Future[None] = loop.create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.SubprocessTransport, transport)  # uvloop's is one in all but its class.
        self.pid = self.transport.get_pid()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self.output += data
        del self.output[:-OUTPUT_TAIL_BYTES]

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        if not self.output_ended.done():
            self.output_ended.set_result(None)

    def process_exited(self) -> None:
        # At once, while the group's number cannot yet belong to anybody else.
        self.kill_group()
        exit_code = self.transport.get_returncode()
        if not self.exited.done():
            self.exited.set_result(-signal.SIGKILL if exit_code is None else exit_code)

    def kill_group(self) -> None:
        if not self.pid:  # Never connected. Group 0 would be this process's own.
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)


def describe_exit(exit_code: int) -> str:
    """In words: "exit code 3", or "signal SIGKILL" for -9."""
    if exit_code >= 0:
        return f"exit code {exit_code}"
    try:
        return f"signal {signal.Signals(-exit_code).name}"
    except ValueError:
        return f"signal {-exit_code}"


async def _spawn(python: str, module: str, arguments: Sequence[str], environment: Mapping[str, str], link_fd: int) -> _Process:
    command = (python or sys.executable, "-P", "-m", PROGRAM, module, "--link-fd", str(link_fd), *arguments)
    own_modules = {} if python else {"PYTHONPATH": _import_path()}
    variables = {**os.environ, **own_modules, **environment}
    _, process = await asyncio.get_running_loop().subprocess_exec(
        _Process, *command, stdin=DEVNULL, stdout=PIPE, stderr=STDOUT, env=variables, pass_fds=[link_fd], start_new_session=True
    )
    return process


def _import_path() -> str:
    """The controller's import path, so that a child finds the same modules in the same order."""
    return os.pathsep.join(path or os.getcwd() for path in sys.path)
