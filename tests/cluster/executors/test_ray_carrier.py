"""The controller's side without Ray: what is kept of workers that are lost."""

import asyncio
from typing import Any

import pytest

from plait.cluster.executors import ray_executor
from plait.cluster.executors.carrier import WorkerNeeds, WorkerProgram
from plait.cluster.executors.ray_actor import Started
from plait.cluster.executors.ray_carrier import RayCarrier
from plait.cluster.executors.ray_executor import RayExecutor
from plait.types.errors import WorkerFailure

PROGRAM = WorkerProgram("w", "none")


class Method:
    """Of an actor. A call ends when the actor does."""

    def __init__(self, actor: "Actor", name: str) -> None:
        self._actor, self._name = actor, name

    def remote(self, *_: Any) -> "asyncio.Future[Any]":
        if self._name == "start":
            started: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            started.set_result(Started(1, "here", "node", "version"))
            return started
        return self._actor.call()


class Actor:
    def __init__(self) -> None:
        self._calls: list[asyncio.Future[Any]] = []
        self.start, self.collect, self.end = (Method(self, name) for name in ("start", "collect", "end"))

    def call(self) -> "asyncio.Future[Any]":
        self._calls.append(asyncio.get_running_loop().create_future())
        return self._calls[-1]

    def die(self) -> None:
        for call in self._calls:
            if not call.done():
                call.set_exception(RuntimeError("the node is gone"))


class Cluster(RayExecutor):
    """Of actors in this process."""

    def __init__(self) -> None:
        super().__init__("", "pack", {"w": WorkerNeeds(1)})
        self.actors: list[Actor] = []

    async def _open(self) -> None:
        """There is nothing to connect to."""

    def _make_actor(self, program: WorkerProgram) -> Any:
        self.actors.append(Actor())
        return self.actors[-1]

    def _check(self, program: WorkerProgram, started: Started) -> None:
        """Whatever its version is."""


@pytest.fixture(autouse=True)
def no_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_executor, "_kill", lambda actor: None)


def test_nothing_is_kept_of_workers_that_were_replaced() -> None:
    async def main() -> None:
        cluster = Cluster()
        for _ in range(5):
            carrier = await cluster.start(PROGRAM)
            receiving = asyncio.create_task(carrier.receive())
            while not cluster.actors[-1]._calls:
                await asyncio.sleep(0)
            cluster.actors.pop().die()
            with pytest.raises(WorkerFailure, match="the node is gone"):
                await receiving
            await carrier.close()
        last = await cluster.start(PROGRAM)
        assert cluster._carriers == [last]

    asyncio.run(main())


def test_one_with_a_call_under_way_is_kept_until_that_has_ended() -> None:
    """Ray ends the process of whoever closes the connection under a call."""

    async def main() -> None:
        cluster = Cluster()
        carrier = await cluster.start(PROGRAM)
        assert isinstance(carrier, RayCarrier)
        receiving = asyncio.create_task(carrier.receive())
        while carrier._collecting is None:
            await asyncio.sleep(0)
        carrier.kill()
        with pytest.raises(WorkerFailure, match="was killed"):
            await receiving
        assert not carrier.is_over
        await cluster.start(PROGRAM)
        assert carrier in cluster._carriers
        cluster.actors[0].die()
        await carrier.close()
        assert carrier.is_over
        await cluster.start(PROGRAM)
        assert carrier not in cluster._carriers

    asyncio.run(main())
