"""What ends a move of a base model that is not the move itself."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from plait.cluster.groups import group_move
from plait.cluster.groups.grouped_workers import GroupedWorkers
from plait.cluster.groups.messages import Host, Pass
from plait.cluster.groups.worker_group import WorkerGroup
from plait.cluster.messages import SubmitChunks
from plait.cluster.model_messages import OpenModel
from plait.cluster.restarts import Restarts
from plait.scheduling.orders import Fifo
from plait.types.lora import LoraConfig
from tests.cluster.groups.test_moves import two_bases


def test_who_wanted_to_move_a_base_that_ends_goes_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async def ended() -> None:
        async with two_bases(monkeypatch, tmp_path, 0) as (_, [base, _other]):
            move = asyncio.create_task(base.groups.jobs["a"].move_to("group-1"))
            await asyncio.sleep(0)
            await base.backend.workers.close()
            assert await move is False
            assert "a" not in base.groups.jobs

    asyncio.run(ended())


def test_who_wanted_to_move_a_base_that_ends_may_be_ended_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async def ended() -> None:
        async with two_bases(monkeypatch, tmp_path, 0) as (_, [base, _other]):
            move = asyncio.create_task(base.groups.jobs["a"].move_to("group-1"))
            await asyncio.sleep(0)
            closing = asyncio.create_task(base.backend.workers.close())
            await asyncio.sleep(0)
            move.cancel()
            with pytest.raises(asyncio.CancelledError):
                await move
            await closing

    asyncio.run(ended())


def test_a_group_that_is_lost_for_good_as_a_base_comes_there_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async def lost() -> None:
        async with two_bases(monkeypatch, tmp_path, 0) as (disk, [base, _other]):
            goal, let_go = base.groups.named("group-1"), group_move._let_go
            goal._restarts = Restarts(0, base.groups.clock)

            async def late(workers: GroupedWorkers, group: WorkerGroup, *patience_s: float) -> None:
                if group is not goal:
                    disk.of("group-1").die()
                await let_go(workers, group, *patience_s)

            monkeypatch.setattr(group_move, "_let_go", late)
            assert await base.groups.jobs["a"].move_to("group-1")
            assert base.failures
            assert all("was killed" in str(failure) for failure in base.failures)

    asyncio.run(lost())


def test_a_base_ends_though_the_group_that_it_was_to_move_to_hangs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(group_move, "PATIENCE_S", 0.01)

    async def ended() -> None:
        async with two_bases(monkeypatch, tmp_path, 0) as (disk, [base, other]):
            goal = base.groups.named("group-1")
            move = asyncio.create_task(base.groups.jobs["a"].move_to("group-1"))
            while not goal.is_up("a/rollout"):
                await asyncio.sleep(0)
            disk.of("group-1").hang()
            await asyncio.wait_for(base.backend.workers.close(), 30)
            assert await move is False
            disk.of("group-1").die()
            assert not other.failures

    asyncio.run(ended())


@pytest.mark.parametrize("fails_on", ["on_trainer_ready", "on_worker_lost"])
def test_what_hears_of_a_move_and_fails_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fails_on: str) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    async def moved() -> None:
        async with two_bases(monkeypatch, tmp_path, 0) as (disk, [base, _other]):
            goal, let_go = base.groups.named("group-1"), group_move._let_go

            async def late(workers: GroupedWorkers, group: WorkerGroup, *patience_s: float) -> None:
                if group is not goal and fails_on == "on_worker_lost":
                    disk.of("group-1").die()
                await let_go(workers, group, *patience_s)

            monkeypatch.setattr(group_move, "_let_go", late)
            monkeypatch.setattr(base.backend, fails_on, broken)
            assert await base.groups.jobs["a"].move_to("group-1")
            assert {type(failure) for failure in base.failures} == {ZeroDivisionError}
            assert not base.backend.workers.is_moving  # type: ignore[attr-defined]
            assert base.backend.deployment._held is None

    asyncio.run(moved())


def test_what_comes_up_while_a_base_moves_loses_nothing_that_it_began(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its training comes back at the old group in the midst of the move, and opens what waited for it."""

    async def moved() -> None:
        async with two_bases(monkeypatch, tmp_path, 0) as (disk, [base, _other]):
            source, opened = base.groups.named("group-0"), asyncio.Event()
            source.dispatcher._order = Fifo()
            monkeypatch.setattr(base.backend, "on_message", lambda *said: opened.set())
            disk.of("group-0").die()
            base.backend.deployment.train(OpenModel("m", "t", LoraConfig(4, 8.0, ("q_proj",), 0), "folder"))
            await until(lambda: source.is_up("a/rollout"))
            process = disk.of("group-0")
            process.held_back = []
            await until(lambda: process.held_back)
            sampled = asyncio.create_task(base.sample(0))
            await until(lambda: source.dispatcher.queue.waiting("a/rollout").num_calls)
            move = asyncio.create_task(base.groups.jobs["a"].move_to("group-1"))
            await until(lambda: move.done() or source._draining)
            process.go_on(Host)
            await until(lambda: source.is_up("a/train"))
            await until(lambda: process.holds_back(SubmitChunks))
            process.go_on(Pass)
            await move
            process.go_on()
            await asyncio.gather(sampled, opened.wait())

    asyncio.run(asyncio.wait_for(moved(), 60))


async def until(condition: Callable[[], object]) -> None:
    while not condition():
        await asyncio.sleep(0)
