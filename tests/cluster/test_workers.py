"""What workers are told of each other's threads, and what becomes of those that are lost."""

import asyncio
import os
from typing import Any, cast

import pytest

from plait.cluster.client import WorkerClient
from plait.cluster.configurations import configurations
from plait.cluster.executors.carrier import Carrier, WorkerProgram
from plait.cluster.messages import Configure, FromWorker, Ready, SetThreads, Starting, from_worker
from plait.cluster.workers import Workers
from plait.config.run import RunSettings
from plait.types.errors import WorkerFailure
from tests.runs import tiny_task


class Client:
    def __init__(self, settings: Configure) -> None:
        self.settings = settings
        self.sent: list[Any] = []

    def send(self, message: Any) -> None:
        self.sent.append(message)


def told(lend_threads: bool) -> list[Any]:
    """What the rollout worker hears while the trainer is idle and while it is not."""
    section = {"rollout_threads": 2, "train_threads": 1, "lend_threads": lend_threads}
    settings = RunSettings.model_validate({"workers": section, "tasks": [tiny_task("a")]})
    workers = Workers(configurations(settings, "model", 1), 0, *[lambda *_: None] * 4)
    clients = {c.name: Client(c) for c in workers.configurations}
    workers._clients = cast(dict[str, WorkerClient], clients)
    workers.lend_threads(trainer_is_idle=True)
    workers.lend_threads(trainer_is_idle=False)
    return [message for client in clients.values() for message in client.sent]


def test_an_idle_trainers_threads_are_lent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    assert told(lend_threads=True) == [SetThreads(3), SetThreads(2)]


def test_unless_the_settings_say_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    assert told(lend_threads=False) == []


class Fragile:
    """A carrier of a worker that says that it is ready, and then waits to be lost."""

    pid = 1

    def __init__(self) -> None:
        said = (Ready("digest", True, "", "cpu", 0.0), Starting(""), Starting("loading the model"))
        self.frames = [from_worker.encode(message) for message in said]
        self.is_lost = asyncio.Event()
        self.is_closed = self.refuses = False

    async def send(self, message: bytes) -> None:
        if self.refuses:
            raise ValueError("the message is too long")

    async def receive(self) -> bytes:
        if not self.frames:
            await self.is_lost.wait()
        if self.frames:
            return self.frames.pop()
        raise WorkerFailure("it is gone")

    def kill(self) -> None:
        self.is_lost.set()

    async def close(self) -> None:
        self.is_closed = True


class FragileExecutor:
    """Every second worker is lost before it has started, or what `raised` says happens."""

    def __init__(self, raised: Exception | None = None) -> None:
        self.raised = raised or WorkerFailure("its node went away")
        self.started: list[Fragile] = []
        self.num_calls = 0
        self.is_closed = False

    async def start(self, program: WorkerProgram) -> Carrier:
        self.num_calls += 1
        if self.num_calls % 2 == 0:
            raise self.raised
        self.started.append(Fragile())
        return self.started[-1]

    async def close(self) -> None:
        self.is_closed = True


def test_a_replacement_that_is_lost_as_it_starts_is_replaced_too() -> None:
    executor, heard = FragileExecutor(), []
    settings = RunSettings.model_validate({"workers": {"layout": "shared"}, "tasks": [tiny_task("a")]})

    async def main() -> None:
        is_ready, has_failed = asyncio.Event(), asyncio.Event()

        def failed(error: Exception) -> None:
            heard.append(str(error))
            has_failed.set()

        workers = Workers(
            configurations(settings, "model", 1), 3, lambda *_: None, lambda *_: heard.append("lost"),
            lambda *_: is_ready.set(), failed, executor=executor,
        )  # fmt: skip
        await workers.start()
        executor.started[0].is_lost.set()
        await is_ready.wait()
        assert (executor.num_calls, heard) == (3, ["lost"])
        executor.started[1].is_lost.set()
        await has_failed.wait()
        await workers.close()

    asyncio.run(asyncio.wait_for(main(), 30))
    assert heard == ["lost", "lost", "its node went away"], "the fourth loss within the hour was one too many"
    assert executor.num_calls == 4
    assert executor.is_closed


def test_what_a_worker_does_until_it_is_up_is_heard_meanwhile() -> None:
    settings = RunSettings.model_validate({"workers": {"layout": "shared"}, "tasks": [tiny_task("a")]})
    heard: list[tuple[str, FromWorker]] = []

    async def main() -> None:
        workers = Workers(
            configurations(settings, "model", 1), 0, lambda *said: heard.append(said), lambda *_: None, lambda *_: None,
            lambda *_: None, executor=FragileExecutor(),
        )  # fmt: skip
        assert (await workers.start()).base_digest == "digest"
        await workers.close()

    asyncio.run(asyncio.wait_for(main(), 30))
    assert heard == [("worker", Starting("loading the model")), ("worker", Starting(""))]


def test_an_error_while_a_replacement_starts_is_told() -> None:
    executor = FragileExecutor(ZeroDivisionError("a mistake"))
    settings = RunSettings.model_validate({"workers": {"layout": "shared"}, "tasks": [tiny_task("a")]})

    async def main() -> None:
        failed: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
        workers = Workers(
            configurations(settings, "model", 1), 3, lambda *_: None, lambda *_: None, lambda *_: None, failed.set_result,
            executor=executor,
        )  # fmt: skip
        await workers.start()
        executor.started[0].is_lost.set()
        assert isinstance(await failed, ZeroDivisionError)
        await workers.close()

    asyncio.run(asyncio.wait_for(main(), 30))


class Told:
    """What a caller of workers of one process hears; handlers may raise."""

    def __init__(self, executor: FragileExecutor, raises: str = "") -> None:
        self.heard: list[str] = []
        self.failures: list[Exception] = []
        self._raises = raises
        settings = RunSettings.model_validate({"workers": {"layout": "shared"}, "tasks": [tiny_task("a")]})
        self.workers = Workers(
            configurations(settings, "model", 1), 3, lambda *_: None, lambda *_: self._hear("lost"), lambda *_: self._hear("ready"),
            self.failures.append, executor=executor,
        )  # fmt: skip

    def _hear(self, what: str) -> None:
        self.heard.append(what)
        if what == self._raises:
            raise ZeroDivisionError(what)


class SteadyExecutor(FragileExecutor):
    async def start(self, program: WorkerProgram) -> Carrier:
        self.started.append(Fragile())
        return self.started[-1]


async def settled() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


@pytest.mark.parametrize("raises", ["lost", "ready"])
def test_a_handler_that_fails_is_told_and_the_worker_replaced(raises: str) -> None:
    async def main() -> None:
        executor = SteadyExecutor()
        told = Told(executor, raises)
        await told.workers.start()
        executor.started[0].is_lost.set()
        await settled()
        assert (told.heard, len(executor.started)) == (["lost", "ready"], 2)
        assert [type(error) for error in told.failures] == [ZeroDivisionError]
        await told.workers.close()

    asyncio.run(asyncio.wait_for(main(), 30))


def test_a_worker_that_cannot_be_understood_ends_before_it_is_replaced() -> None:
    async def main() -> None:
        executor = SteadyExecutor()
        told = Told(executor)
        await told.workers.start()
        executor.started[0].frames.append(b"\xc1")
        executor.started[0].is_lost.set()
        await settled()
        assert (told.heard, len(executor.started)) == (["lost", "ready"], 2)
        assert executor.started[0].is_closed
        await told.workers.close()

    asyncio.run(asyncio.wait_for(main(), 30))


def test_a_worker_that_is_lost_as_all_end_is_not_replaced() -> None:
    async def main() -> None:
        executor = SteadyExecutor()
        told = Told(executor)
        await told.workers.start()
        executor.started[0].is_lost.set()
        await told.workers.close()
        await settled()
        assert len(executor.started) == 1

    asyncio.run(asyncio.wait_for(main(), 30))


def test_a_worker_to_which_nothing_can_be_sent_is_replaced() -> None:
    async def main() -> None:
        executor = SteadyExecutor()
        told = Told(executor)
        await told.workers.start()
        executor.started[0].refuses = True
        told.workers.send_to("worker", SetThreads(1))
        await settled()
        assert (told.heard, len(executor.started)) == (["lost", "ready"], 2)
        await told.workers.close()

    asyncio.run(asyncio.wait_for(main(), 30))
