"""What ends a move of a base model that is not the move itself."""

import asyncio
from pathlib import Path

import pytest

from plait.cluster.groups import group_move
from plait.cluster.groups.grouped_workers import GroupedWorkers
from plait.cluster.groups.worker_group import WorkerGroup
from plait.cluster.restarts import Restarts
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

            async def late(workers: GroupedWorkers, group: WorkerGroup) -> None:
                if group is not goal:
                    disk.of("group-1").die()
                await let_go(workers, group)

            monkeypatch.setattr(group_move, "_let_go", late)
            assert await base.groups.jobs["a"].move_to("group-1")
            assert base.failures
            assert all("was killed" in str(failure) for failure in base.failures)

    asyncio.run(lost())
