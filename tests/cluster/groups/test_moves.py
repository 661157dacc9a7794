"""Base models that move between worker groups in the midst of their work, whose processes may be lost at any moment."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from plait.cluster.groups import grouped_workers, worker_group
from plait.cluster.groups.factory import grouped, make_groups
from plait.cluster.groups.router import Router
from plait.cluster.groups.worker_groups import WorkerGroups
from plait.cluster.model_messages import ForwardBackward, OpenModel, OptimStep
from plait.config.server import ServerSettings
from plait.rollout.request import GenerationRequest
from plait.server.backend import Backend
from plait.server.trainer_calls import TrainerCalls, TrainerLost
from plait.types.errors import PlaitError
from plait.types.lora import LoraConfig
from plait.types.policy import PolicyVersion
from plait.types.sampling import SamplingParams
from tests.cluster.groups.fake_group import Disk, continuation

NUM_STEPS, NUM_TOKENS = 16, 200
WORKERS = {"layout": "multiplexed", "device_bytes": 100, "groups": 2, "max_restarts": 100}
SETTINGS = ServerSettings.model_validate({"workers": WORKERS, "engine": {"chunk_tokens": 5, "adaptive_concurrency": False}})


class Base:
    """A base model of a service, on groups that it shares."""

    def __init__(self, name: str, groups: WorkerGroups, folder: Path) -> None:
        self.name, self.groups = name, groups
        self.failures: list[Exception] = []
        self.backend = Backend(SETTINGS, "", None, self.failures.append, folder / name, grouped(groups, name))
        self.trainer = TrainerCalls(self.backend)

    async def train(self, model: str) -> None:
        """Two forward_backward calls and a step, again and again, as `ModelRunner` does it."""
        opened_at: int | None = None
        version, waiting = 0, list[int]()
        while version < NUM_STEPS:
            try:
                if opened_at != self.trainer.num_losses(model):
                    opened_at, num_losses = None, self.trainer.num_losses(model)
                    opened = await self.trainer.open(OpenModel(model, "t", LoraConfig(4, 8.0, ("q_proj",), 0), "folder"))
                    if opened.ref.policy.version > version:
                        version, waiting = version + 1, []
                    assert opened.ref.policy.version == version, "a step is lost, or done twice"
                    for seq_id in waiting:
                        await self.trainer.call(ForwardBackward(model, seq_id, (), "{}"))
                    opened_at = num_losses
                    continue
                seq_id = 3 * version + len(waiting) + 1
                if len(waiting) < 2:
                    await self.trainer.call(ForwardBackward(model, seq_id, (), "{}"))
                    waiting.append(seq_id)
                else:
                    await self.trainer.call(OptimStep(model, seq_id, "{}"))
                    version, waiting = version + 1, []
            except TrainerLost:
                await self.trainer.wait_until_back()

    async def sample(self, number: int) -> None:
        prompt = (number, 2, 3)
        request = GenerationRequest(
            f"{self.name}{number}", "t", PolicyVersion("t", "base", 0), None, prompt, SamplingParams(NUM_TOKENS)
        )  # fmt: skip
        segment = await self.backend.rollout.generate(request)
        assert list(segment.tokens) == continuation(list(prompt), NUM_TOKENS)

    async def work(self) -> None:
        await asyncio.gather(*(self.train(f"{self.name}-{n}") for n in range(3)), *(self.sample(n) for n in range(4)))


@asynccontextmanager
async def two_bases(
    monkeypatch: pytest.MonkeyPatch, folder: Path, seed: int, routes: Mapping[str, str] | None = None
) -> AsyncIterator[tuple[Disk, list[Base]]]:
    disk = Disk(seed)
    monkeypatch.setattr(worker_group, "GroupLink", disk)
    monkeypatch.setattr(grouped_workers, "expected_bytes", lambda _: 10)
    groups = make_groups(SETTINGS.workers, "cpu")
    if routes is not None:
        groups = WorkerGroups([group.settings for group in groups.groups.values()], Router(routes))
    bases = [Base(name, groups, folder) for name in "ab"]
    try:
        await asyncio.gather(*(base.backend.start() for base in bases))
        yield disk, bases
    finally:
        await asyncio.gather(*(base.backend.close() for base in bases))


def check(disk: Disk, bases: list[Base]) -> None:
    expected = [(3 * version + 1, 3 * version + 2) for version in range(NUM_STEPS)]
    assert dict(disk.steps) == {f"{base.name}-{n}": expected for base in bases for n in range(3)}
    assert [base.failures for base in bases] == [[], []]


async def disturbed(bases: list[Base], disturb: Callable[[], Any]) -> int:
    """Until all work is done; how often it was disturbed."""
    work, number = asyncio.gather(*(base.work() for base in bases)), 0
    while not work.done():
        await asyncio.sleep(0)
        await disturb()
        number += 1
    await asyncio.wait_for(work, 120)
    return number


@pytest.mark.parametrize("seed", range(4))
def test_moves_lose_and_double_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, seed: int) -> None:
    async def moved() -> None:
        async with two_bases(monkeypatch, tmp_path, seed) as (disk, bases):
            groups = bases[0].groups
            assert [groups.group_of(base.name) for base in bases] == ["group-0", "group-1"]

            async def move() -> None:
                base = disk.chance.choice(bases)
                is_first = not groups.num_moves
                target = "group-1" if is_first and groups.group_of(base.name) == "group-0" else "group-0"
                target = target if is_first else disk.chance.choice(["group-0", "group-1"])
                was_there = groups.group_of(base.name) == target
                assert await groups.jobs[base.name].move_to(target) is not was_there
                assert groups.group_of(base.name) == target

            assert await disturbed(bases, move) >= 1
            check(disk, bases)
            assert sum(groups.num_moves.values()) >= 1
            assert max(base.trainer.num_losses(f"{base.name}-0") for base in bases) <= sum(groups.num_moves.values())

    asyncio.run(moved())


@pytest.mark.parametrize("seed", range(6))
def test_processes_may_be_lost_while_models_move(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, seed: int) -> None:
    async def broken() -> None:
        async with two_bases(monkeypatch, tmp_path, seed) as (disk, bases):
            groups = bases[0].groups

            async def kill_in_a_move() -> None:
                base = disk.chance.choice(bases)
                move = asyncio.create_task(groups.jobs[base.name].move_to(disk.chance.choice(["group-0", "group-1"])))
                await asyncio.sleep(disk.chance.random() * 0.02)
                victim = disk.of(disk.chance.choice(["group-0", "group-1"]))
                if groups.named(victim.settings.name).pid == victim.pid:
                    victim.die()
                await asyncio.gather(move, return_exceptions=True)
                assert move.exception() is None or isinstance(move.exception(), PlaitError)

            await disturbed(bases, kill_in_a_move)
            check(disk, bases)

    asyncio.run(broken())


def test_models_without_gradients_are_not_lost_to_their_callers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async def moved() -> None:
        async with two_bases(monkeypatch, tmp_path, 0) as (_, [base, _other]):
            for model in ("m", "n"):
                await base.trainer.open(OpenModel(model, "t", LoraConfig(4, 8.0, ("q_proj",), 0), "folder"))
                await base.trainer.call(ForwardBackward(model, 1, (), "{}"))
            await base.trainer.call(OptimStep("m", 2, "{}"))
            move = asyncio.create_task(base.groups.jobs["a"].move_to("group-1"))
            while not base.backend.workers.is_moving:  # type: ignore[attr-defined]
                await asyncio.sleep(0)
            done = await base.trainer.call(ForwardBackward("m", 3, (), "{}"))
            assert done.seq_id == 3
            assert await move
            assert [base.trainer.num_losses(model) for model in ("m", "n")] == [0, 1], "n has gradients that wait"

    asyncio.run(moved())


def test_a_move_that_fails_leaves_all_as_it_was(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async def failing() -> None:
        async with two_bases(monkeypatch, tmp_path, 0) as (disk, bases):
            groups = bases[0].groups
            move = asyncio.create_task(groups.jobs["a"].move_to("group-1"))
            while "a/rollout" not in groups.named("group-1").deployments:
                await asyncio.sleep(0)
            disk.of("group-1").die()
            with pytest.raises(PlaitError, match="was killed"):
                await move
            assert groups.group_of("a") == "group-0"
            await asyncio.gather(*(base.work() for base in bases))
            check(disk, bases)

    asyncio.run(failing())


@pytest.mark.parametrize("seed", range(5))
def test_a_service_may_end_in_the_midst_of_a_move(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, seed: int) -> None:
    async def ended() -> None:
        async with two_bases(monkeypatch, tmp_path, seed) as (disk, bases):
            work = asyncio.gather(*(base.work() for base in bases))
            await asyncio.sleep(0.005)
            move = asyncio.create_task(bases[0].groups.jobs["a"].move_to("group-1"))
            await asyncio.sleep(0.001 * seed)
        assert {group.pid for group in bases[0].groups.groups.values()} == {None}
        assert not disk.locks
        await asyncio.gather(move, return_exceptions=True)
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)

    asyncio.run(ended())


def test_deployments_with_routes_stay_where_they_are_said_to_be(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One group for the rollouts of both, and one for their training."""

    async def routed() -> None:
        routes = {f"{base}/{role}": group for base in "ab" for role, group in (("rollout", "group-0"), ("train", "group-1"))}
        async with two_bases(monkeypatch, tmp_path, 0, routes) as (disk, bases):
            hosted = [disk.of(group).hosted for group in ("group-0", "group-1")]
            assert [sorted(names) for names in hosted] == [["a/rollout", "b/rollout"], ["a/train", "b/train"]]
            await asyncio.gather(*(base.work() for base in bases))
            check(disk, bases)
            bases[0].groups.look()
            bases[0].groups.placement.settle()
            assert bases[0].groups.misplaced() == {}

    asyncio.run(routed())
