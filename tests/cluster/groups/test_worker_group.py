"""What becomes of deployments of a worker group when its process, a listener or a caller fails at the worst moment."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from plait.cluster.groups import worker_group
from plait.cluster.groups.messages import CallOver, ConfigureGroup, Host, ToGroup
from plait.cluster.groups.worker_group import WorkerGroup
from plait.cluster.messages import FromWorker
from plait.scheduling.orders import Hrrs
from plait.types.errors import ConfigError, PlaitError, WorkerFailure
from tests.cluster.groups.fake_group import Disk, FakeLink
from tests.cluster.groups.fake_process import SETTINGS

GROUP = ConfigureGroup(
    name="group", threads=1, device="cpu", device_bytes=100, host_bytes=0, host_folder="", folder="", disk_bytes=0
)  # fmt: skip


class Link(FakeLink):
    """`takes_up` lets it answer; `ends` lets it end."""

    def __init__(self, disk: "Links", *arguments: Any) -> None:
        super().__init__(disk, *arguments)
        self.hosts: list[str] = []

    async def close(self) -> None:
        assert isinstance(self.disk, Links)
        await self.disk.ends.wait()
        await super().close()

    def _handle(self, frame: ToGroup) -> None:
        if isinstance(frame, Host):
            self.hosts.append(frame.deployment)
        if not (isinstance(self.disk, Links) and self.disk.hangs):
            super()._handle(frame)


class Links(Disk):
    """Starts processes when `starts` is set; the next ones fail with what is in `failures`."""

    def __init__(self) -> None:
        super().__init__()
        self.starts, self.ends = asyncio.Event(), asyncio.Event()
        self.starts.set()
        self.ends.set()
        self.failures: list[Exception] = []
        self.hangs = False

    async def start(self, *arguments: Any) -> FakeLink:
        await self.starts.wait()
        if self.failures:
            raise self.failures.pop()
        self.links.append(Link(self, *arguments[-3:]))
        return self.links[-1]


class Listener:
    """`raises`: on hearing what."""

    def __init__(self, raises: str = "") -> None:
        self.heard: list[str] = []
        self.failures: list[Exception] = []
        self.is_back = asyncio.Event()
        self._raises = raises

    def _hear(self, what: str) -> None:
        self.heard.append(what)
        if what == self._raises:
            raise ZeroDivisionError(what)

    def on_message(self, message: FromWorker) -> None: ...

    def on_lost(self, failure: WorkerFailure) -> None:
        self._hear("lost")

    def on_ready(self) -> None:
        self.is_back.set()
        self._hear("ready")

    def on_failed(self, error: Exception) -> None:
        self.failures.append(error)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[Links, WorkerGroup], Awaitable[None]]], None]:
    def run(test: Callable[[Links, WorkerGroup], Awaitable[None]]) -> None:
        async def main() -> None:
            links = Links()
            monkeypatch.setattr(worker_group, "GroupLink", links)
            await test(links, WorkerGroup(GROUP, Hrrs(), 2))

        asyncio.run(asyncio.wait_for(main(), 60))

    return run


Run = Callable[[Callable[[Links, WorkerGroup], Awaitable[None]]], None]


async def settled() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


def test_who_comes_while_the_process_is_replaced_comes_up_once(run: Run) -> None:
    async def test(links: Links, group: WorkerGroup) -> None:
        old = Listener()
        await group.attach("a", SETTINGS, old)
        links.starts.clear()
        links.links[0].die()
        await settled()
        new = asyncio.create_task(group.attach("b", SETTINGS, Listener()))
        await settled()
        links.starts.set()
        await new
        await old.is_back.wait()
        await settled()
        assert group.is_up("a")
        assert group.is_up("b")
        assert isinstance(links.links[1], Link)
        assert links.links[1].hosts == ["a", "b"]
        assert len(links.links) == 2

    run(test)


def test_what_was_given_up_as_it_came_is_not_at_the_process_any_more(run: Run) -> None:
    async def test(links: Links, group: WorkerGroup) -> None:
        await group.attach("a", SETTINGS, Listener())
        coming = asyncio.create_task(group.attach("b", SETTINGS, Listener()))
        await asyncio.sleep(0)
        coming.cancel()
        await asyncio.gather(coming, return_exceptions=True)
        while not (isinstance(links.links[0], Link) and "b" in links.links[0].hosts):
            await asyncio.sleep(0.001)
        while "b" in links.links[0].hosted:
            await asyncio.sleep(0.001)
        await group.attach("b", SETTINGS, Listener())
        assert links.links[0].hosted == ["a", "b"]

    run(test)


def test_who_comes_while_the_last_process_ends_comes_up_at_the_next(run: Run) -> None:
    async def test(links: Links, group: WorkerGroup) -> None:
        await group.attach("a", SETTINGS, Listener())
        links.ends.clear()
        leaving = asyncio.create_task(group.detach("a"))
        while group.pid is not None:
            await asyncio.sleep(0)
        coming = asyncio.create_task(group.attach("b", SETTINGS, Listener()))
        await asyncio.sleep(0.01)
        assert len(links.links) == 1, "the old one has the folder until it has ended"
        links.ends.set()
        await asyncio.gather(leaving, coming)
        assert group.is_up("b")

    run(test)


@pytest.mark.parametrize("raises", ["lost", "ready"])
def test_a_listener_that_fails_keeps_nobody_from_coming_back(run: Run, raises: str) -> None:
    async def test(links: Links, group: WorkerGroup) -> None:
        bad, good = Listener(raises), Listener()
        await group.attach("a", SETTINGS, bad)
        await group.attach("b", SETTINGS, good)
        links.links[0].die()
        await good.is_back.wait()
        assert good.heard == ["lost", "ready"]
        assert [type(error) for error in bad.failures] == [ZeroDivisionError]

    run(test)


def test_a_replacement_that_is_lost_as_it_starts_is_replaced_as_often_as_may_be(run: Run) -> None:
    async def test(links: Links, group: WorkerGroup) -> None:
        listener = Listener()
        await group.attach("a", SETTINGS, listener)
        links.failures = [WorkerFailure("no memory")]
        links.links[0].die()
        await listener.is_back.wait()
        links.links[1].die()
        await settled()
        assert [str(error) for error in listener.failures] == [f"process {links.links[1].pid} of group was killed"]

    run(test)


def test_a_replacement_that_cannot_be_is_told(run: Run) -> None:
    async def test(links: Links, group: WorkerGroup) -> None:
        listener = Listener()
        await group.attach("a", SETTINGS, listener)
        links.failures = [OSError("no processes are left")]
        links.links[0].die()
        await settled()
        assert [str(error) for error in listener.failures] == ["no processes are left"]

    run(test)


def test_a_frame_that_makes_no_sense_is_told_to_all(run: Run) -> None:
    async def test(links: Links, group: WorkerGroup) -> None:
        listeners = [Listener(), Listener()]
        for name, listener in zip("ab", listeners, strict=True):
            await group.attach(name, SETTINGS, listener)

        def refuse(*_: object) -> None:
            raise KeyError("call")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(group.dispatcher, "call_over", refuse)
            links.links[0]._on_frame(CallOver("unheard of", 0.0, {}, ()))
        assert [type(listener.failures[0]) for listener in listeners] == [KeyError, KeyError]

    run(test)


def test_a_process_that_hangs_ends_with_its_last_deployment(run: Run) -> None:
    async def test(links: Links, group: WorkerGroup) -> None:
        for name in "ab":
            await group.attach(name, SETTINGS, Listener())
        links.hangs = True
        await asyncio.gather(*(group.detach(name, 0.01) for name in "ab"))
        assert group.pid is None
        links.hangs = False
        await group.attach("a", SETTINGS, Listener())

    run(test)


def test_who_leaves_before_there_is_a_process_hears_so(run: Run) -> None:
    async def test(links: Links, group: WorkerGroup) -> None:
        links.starts.clear()
        coming = asyncio.create_task(group.attach("a", SETTINGS, Listener()))
        await settled()
        leaving = asyncio.create_task(group.detach("a"))
        await settled()
        links.starts.set()
        with pytest.raises(PlaitError, match="has left"):
            await coming
        await leaving
        assert group.deployments == ()
        with pytest.raises(ConfigError, match="is in group"):
            await asyncio.gather(*(group.attach("b", SETTINGS, Listener()) for _ in range(2)))

    run(test)
