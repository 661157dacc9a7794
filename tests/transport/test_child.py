import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from plait.transport import ChildProcess, child
from plait.types.errors import WorkerFailure

ECHO = "echo_child"
HERE = str(Path(__file__).parent)
HANGS_S = 60.0
"""What takes so long would take for ever: the children sleep for an hour."""


def with_child(scenario: Callable[[ChildProcess], Awaitable[None]]) -> None:
    async def run() -> None:
        child = await ChildProcess.start(ECHO, ("--colour", "red"), {"PLAIT_TEST": "blue", "PYTHONPATH": HERE}, name="echo")
        try:
            assert await child.receive() == b"--colour red"
            await scenario(child)
        finally:
            await child.close(1.0)

    asyncio.run(run())


def wait_until_gone(process_id: int) -> None:
    deadline_s = time.monotonic() + HANGS_S
    while is_alive(process_id):
        assert time.monotonic() < deadline_s, f"process {process_id} is still there"
        time.sleep(0.05)


def is_alive(process_id: int) -> bool:
    """A zombie is not."""
    try:
        return psutil.Process(process_id).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_frames_of_every_size_arrive_in_order() -> None:
    messages = [b"", b"a", b"b" * 70_000, b"c" * 3_000_000]

    async def scenario(child: ChildProcess) -> None:
        sending = asyncio.create_task(_send_all(child, messages))
        assert [await child.receive() for _ in messages] == messages
        await sending

    with_child(scenario)


async def _send_all(child: ChildProcess, messages: list[bytes]) -> None:
    for message in messages:
        await child.send(message)


def test_environment_is_added_to_the_parents() -> None:
    async def scenario(child: ChildProcess) -> None:
        await child.send(b"variable PLAIT_TEST")
        assert await child.receive() == b"blue"
        await child.send(b"variable PATH")
        assert (await child.receive()).decode() == os.environ["PATH"]

    with_child(scenario)


def test_close_ends_the_child_gracefully() -> None:
    async def scenario(child: ChildProcess) -> None:
        await child.close(HANGS_S)
        assert await child.wait() == 7

    with_child(scenario)


def test_exit_is_reported_with_code_and_output() -> None:
    async def scenario(child: ChildProcess) -> None:
        await child.send(b"exit 3")
        with pytest.raises(WorkerFailure, match=r"'echo'.*exit code 3.*\n?last words"):
            await child.receive()
        with pytest.raises(WorkerFailure, match="exit code 3"):
            await _send_all(child, [b"x"] * 10)

    with_child(scenario)


def test_kill_is_reported_as_a_signal() -> None:
    async def scenario(child: ChildProcess) -> None:
        await child.send(b"hang")
        child.kill()
        assert await child.wait() == -signal.SIGKILL
        with pytest.raises(WorkerFailure, match="SIGKILL"):
            await child.receive()

    with_child(scenario)


def test_kill_ends_what_the_child_started() -> None:
    async def scenario(child: ChildProcess) -> None:
        await child.send(b"grandchild")
        process_id = int(await child.receive())
        assert psutil.pid_exists(process_id)
        started_s = time.monotonic()
        os.kill(child.pid, signal.SIGKILL)
        with pytest.raises(WorkerFailure):
            await child.receive()
        assert time.monotonic() - started_s < HANGS_S
        wait_until_gone(process_id)

    with_child(scenario)


def test_close_kills_a_child_that_hangs() -> None:
    async def scenario(child: ChildProcess) -> None:
        await child.send(b"hang")
        await asyncio.sleep(0.2)
        await child.close(0.2)
        assert child.exit_code == -signal.SIGKILL

    with_child(scenario)


def test_a_child_that_sends_no_frames_is_lost() -> None:
    async def scenario(child: ChildProcess) -> None:
        await child.send(b"garbage")
        with pytest.raises(WorkerFailure, match="sent no frame: a message of 4294967295 bytes"):
            await child.receive()
        assert await child.wait() == -signal.SIGKILL

    with_child(scenario)


def test_output_is_bounded() -> None:
    async def scenario(child: ChildProcess) -> None:
        await child.send(b"flood")
        assert await child.receive() == b"done"
        assert 0 < len(child.output_tail) <= 8192

    with_child(scenario)


def test_a_cancelled_receive_loses_nothing() -> None:
    async def scenario(child: ChildProcess) -> None:
        for _ in range(5):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(child.receive(), 0.01)
        await child.send(b"y" * 2_000_000)
        for _ in range(20):
            receiving = asyncio.create_task(child.receive())
            await asyncio.sleep(0)
            receiving.cancel()
            await asyncio.wait([receiving])
            if not receiving.cancelled():
                assert receiving.result() == b"y" * 2_000_000
                return
        assert await child.receive() == b"y" * 2_000_000

    with_child(scenario)


def test_missing_module_is_an_error_that_says_so() -> None:
    async def run() -> None:
        child = await ChildProcess.start("plait.no_such_module")
        with pytest.raises(WorkerFailure, match="no_such_module"):
            await child.receive()
        await child.close()

    asyncio.run(run())


def test_children_end_when_the_parent_is_killed() -> None:
    """One child waits for a message, the other hangs in its own code."""
    script = textwrap.dedent(
        f"""
        import asyncio
        from plait.transport import ChildProcess
        async def main():
            idle, hung = [await ChildProcess.start("{ECHO}", environment=dict(PYTHONPATH="{HERE}")) for _ in range(2)]
            await hung.receive()
            await hung.send(b"hang")
            await asyncio.sleep(0.3)
            print(idle.pid, hung.pid, flush=True)
            await asyncio.sleep(3600)
        asyncio.run(main())
        """
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        process_ids = [int(word) for word in parent.stdout.readline().split()]
        parent.kill()
    assert len(process_ids) == 2
    for process_id in process_ids:
        wait_until_gone(process_id)


def test_works_in_a_loop_outside_the_main_thread() -> None:
    outcomes: list[str] = []

    async def scenario(child: ChildProcess) -> None:
        await child.send(b"ping")
        outcomes.append((await child.receive()).decode())

    thread = threading.Thread(target=with_child, args=(scenario,))
    thread.start()
    thread.join()
    assert outcomes == ["ping"]


def test_who_gives_up_as_a_child_starts_leaves_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "sleeper.py").write_text("import time; time.sleep(3600)")
    started: list[child._Process] = []
    spawn = child._spawn

    async def noted(*arguments: Any) -> child._Process:
        started.append(await spawn(*arguments))
        return started[-1]

    async def give_up() -> None:
        monkeypatch.setattr(child, "_spawn", noted)
        starting = asyncio.create_task(ChildProcess.start("sleeper", environment={"PYTHONPATH": str(tmp_path)}))
        monkeypatch.setattr(asyncio, "open_connection", lambda **_: asyncio.Event().wait())
        while not started:
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        assert starting.cancelled()
        await asyncio.wait_for(asyncio.shield(started[0].exited), HANGS_S)

    asyncio.run(give_up())
