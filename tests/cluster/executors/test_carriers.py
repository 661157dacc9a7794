"""What the controller may rely on, whatever carries a worker."""

import asyncio
import time
from collections.abc import Awaitable, Callable

import psutil
import pytest

from plait.cluster.executors.carrier import Carrier, Executor, WorkerProgram
from plait.cluster.executors.process import ProcessExecutor
from plait.cluster.executors.thread import ThreadExecutor
from plait.types.errors import WorkerFailure

PROGRAM = WorkerProgram("echo", "tests.cluster.executors.echo", {"PLAIT_TEST": "set"})
FRAMES = [bytes([number % 256]) * (1 + (number * 7919) % 90_000) for number in range(60)]


def with_worker(
    executor: Executor,
    use: Callable[[Carrier], Awaitable[None]],
    new_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop,
) -> None:
    async def main() -> None:
        try:
            carrier = await executor.start(PROGRAM)
            try:
                await use(carrier)
            finally:
                await carrier.close()
        finally:
            await executor.close()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(asyncio.wait_for(main(), 240))


async def frames_arrive_in_order_each_once(carrier: Carrier) -> None:
    assert psutil.pid_exists(carrier.pid)

    async def send() -> None:
        for frame in FRAMES:
            await carrier.send(frame)

    sending = asyncio.create_task(send())  # Both sides would wait if nobody read.
    assert [await carrier.receive() for _ in FRAMES] == FRAMES
    await sending
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(carrier.receive(), 0.05)
    await carrier.send(b"none waits")
    assert await carrier.receive() == b"none", "a receive that was cancelled takes nothing with it"


async def loss_is_told(carrier: Carrier, told: str) -> None:
    """After what was sent before, and again to whoever asks again."""
    await carrier.send(b"last")
    await carrier.send(b"raise")
    assert await carrier.receive() == b"last"
    for _ in range(2):
        with pytest.raises(WorkerFailure, match=told):
            await carrier.receive()
    with pytest.raises(WorkerFailure, match="echo"):
        await send_until_lost(carrier)


async def send_until_lost(carrier: Carrier) -> None:
    """A send that is only queued may not know yet."""
    for _ in range(6000):
        await carrier.send(b"to nobody")
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("executor", [ProcessExecutor(), ThreadExecutor()])
def test_frames_arrive_in_order_each_once(executor: Executor) -> None:
    with_worker(executor, frames_arrive_in_order_each_once)


@pytest.mark.parametrize("executor", [ProcessExecutor(), ThreadExecutor()])
def test_loss_is_told_with_its_cause(executor: Executor) -> None:
    with_worker(executor, lambda carrier: loss_is_told(carrier, "ZeroDivisionError"))


def test_a_process_has_the_variables_of_its_program() -> None:
    async def use(carrier: Carrier) -> None:
        await carrier.send(b"variable")
        assert await carrier.receive() == b"set"

    with_worker(ProcessExecutor(), use)


def test_a_thread_that_waits_ends_when_it_is_killed() -> None:
    async def use(carrier: Carrier) -> None:
        carrier.kill()
        with pytest.raises(WorkerFailure, match="the controller has closed the link"):
            await carrier.receive()

    with_worker(ThreadExecutor(), use)


def test_a_thread_that_returns_has_ended() -> None:
    async def use(carrier: Carrier) -> None:
        await carrier.send(b"return")
        with pytest.raises(WorkerFailure, match=r"a thread of process .* has ended\."):
            await carrier.receive()

    with_worker(ThreadExecutor(), use)


def test_a_thread_that_hangs_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plait.cluster.executors.thread.END_TIMEOUT_S", 0.05)

    async def use(carrier: Carrier) -> None:
        await carrier.send(b"never look")

    start_s = time.monotonic()
    with_worker(ThreadExecutor(), use)
    assert time.monotonic() - start_s < 60
