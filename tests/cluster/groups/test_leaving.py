"""Who leaves a worker group and does not wait for it leaves nothing behind."""

import asyncio

import pytest

from plait.cluster.groups.worker_group import WorkerGroup
from plait.cluster.model_messages import OpenModel
from plait.types.lora import LoraConfig
from tests.cluster.groups import test_worker_group
from tests.cluster.groups.fake_process import SETTINGS
from tests.cluster.groups.test_worker_group import Link, Links, Listener, Run, settled

run = test_worker_group.run


@pytest.mark.parametrize("num_turns", range(1, 6))
def test_who_does_not_wait_for_the_last_to_leave_leaves_no_process(run: Run, num_turns: int) -> None:
    async def test(links: Links, group: WorkerGroup) -> None:
        await group.attach("a", SETTINGS, Listener())
        links.hangs = True
        leaving = asyncio.create_task(group.detach("a"))
        for _ in range(num_turns):
            await asyncio.sleep(0)
        leaving.cancel()
        await asyncio.gather(leaving, return_exceptions=True)
        assert (group.deployments, group.pid) == ((), None)

    run(test)


def test_who_does_not_wait_for_the_end_of_a_process_leaves_nothing_of_it(run: Run) -> None:
    async def test(links: Links, group: WorkerGroup) -> None:
        await group.attach("a", SETTINGS, Listener())
        links.hangs = True
        group.send("a", OpenModel("m", "t", LoraConfig(4, 8.0, ("q_proj",), 0), "folder"))
        links.ends.clear()
        leaving = asyncio.create_task(group.detach("a", 0.001))
        while group.pid is not None:
            await asyncio.sleep(0.001)
        leaving.cancel()
        await asyncio.gather(leaving, return_exceptions=True)
        links.hangs = False
        links.ends.set()
        await group.attach("a", SETTINGS, Listener())
        assert group.dispatcher.queue.running is None

    run(test)


def test_who_comes_again_before_its_first_coming_is_over_comes_up_anew(run: Run) -> None:
    async def test(links: Links, group: WorkerGroup) -> None:
        await group.attach("a", SETTINGS, Listener())
        process = links.links[0]
        assert isinstance(process, Link)
        process.hang()
        coming = asyncio.create_task(group.attach("b", SETTINGS, Listener()))
        await settled()
        coming.cancel()
        await asyncio.gather(coming, return_exceptions=True)
        again = asyncio.create_task(group.attach("b", SETTINGS, Listener()))
        await settled()
        process.go_on()
        await again
        assert (process.hosts, process.hosted) == (["a", "b", "b"], ["a", "b"])
        await group.detach("b")
        assert not group._departures._num_told

    run(test)
