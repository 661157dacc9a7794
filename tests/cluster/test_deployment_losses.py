"""Workers that die between any two awaits of the controller: every generation and every prompt comes to what it would have come to.

The workers are made up, and so is the order of things: by a seed. The controller's own parts are real, down to the frames.
"""

import asyncio
import random
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any
from unittest.mock import Mock

import pytest

from plait.cluster.executors.carrier import Carrier, WorkerProgram
from plait.cluster.messages import (
    Busy,
    CancelRequests,
    ChunksDone,
    Configure,
    EndStretches,
    EngineStats,
    FromWorker,
    Ready,
    Starting,
    SubmitChunks,
    ToWorker,
    from_worker,
    to_worker,
)
from plait.cluster.model_messages import PromptScored, ScorePrompt
from plait.cluster.rollout_deployment import RolloutDeployment
from plait.cluster.workers import Workers
from plait.config.run import RunSettings
from plait.rollout.request import GenerationRequest
from plait.types.errors import WorkerFailure
from plait.types.policy import PolicyVersion
from plait.types.sampling import SamplingParams
from tests.rollout.fake_engine import FakeEngine, whole_generation
from tests.runs import tiny_settings, tiny_task

BASE = PolicyVersion("local", "base", 0)
NUM_REQUESTS, NUM_PROMPTS, NUM_TOKENS, NUM_SEEDS = 8, 8, 23, 20
HANGS_S = 120.0


class Chance:
    """What happens between two awaits: other things' turns, and now and then somebody's death."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.deaths_left = self.random.randrange(1, 8)
        self.alive: list[FakeCarrier] = []

    async def pause(self) -> None:
        for _ in range(self.random.choice((0, 0, 1, 2, 7))):
            await asyncio.sleep(0)
        if self.alive and self.deaths_left and self.random.random() < 0.03:
            self.deaths_left -= 1
            self.random.choice(self.alive).die()


class FakeExecutor:
    def __init__(self, chance: Chance) -> None:
        self._chance = chance
        self.num_started = 0

    async def start(self, program: WorkerProgram) -> Carrier:
        await self._chance.pause()
        self.num_started += 1
        return FakeCarrier(program.name, self.num_started, self._chance)

    async def close(self) -> None:
        assert not self._chance.alive


class FakeCarrier:
    """Frames that were on the way when it dies may come or be lost, the last ones first."""

    def __init__(self, name: str, pid: int, chance: Chance) -> None:
        self.name, self.pid, self._chance = name, pid, chance
        self._in: asyncio.Queue[ToWorker] = asyncio.Queue()
        self._out: deque[bytes] = deque()
        self._news, self._is_dead = asyncio.Event(), False
        self._engine = FakeEngine()
        self._work = asyncio.create_task(self._run())
        chance.alive.append(self)

    def die(self) -> None:
        if not self._is_dead:
            self._is_dead = True
            self._chance.alive.remove(self)
            for _ in range(self._chance.random.randrange(len(self._out) + 1)):
                self._out.pop()
            self._work.cancel()
            self._news.set()

    kill = die

    async def send(self, message: bytes) -> None:
        await self._chance.pause()
        if self._is_dead:
            raise WorkerFailure(f"{self.name} is gone")
        self._in.put_nowait(to_worker.decode(message))

    async def receive(self) -> bytes:
        await self._chance.pause()
        while not self._out:
            if self._is_dead:
                await self._chance.pause()
                raise WorkerFailure(f"{self.name} is gone")
            self._news.clear()
            await self._news.wait()
        return self._out.popleft()

    async def close(self) -> None:
        self.die()
        await asyncio.gather(self._work, return_exceptions=True)

    # ---- the worker

    async def _run(self) -> None:
        assert isinstance(await self._in.get(), Configure)
        await self._say(Starting("loading the model"))
        await self._say(Ready("digest", True, "", "cpu", 0.0))
        while True:
            if not self._engine.chunks or not self._in.empty():
                await self._handle(await self._in.get())
            else:
                await self._step()

    async def _handle(self, message: ToWorker) -> None:
        match message:
            case SubmitChunks(chunks):
                self._engine.submit(chunks)
            case CancelRequests(request_ids):
                self._engine.cancel(request_ids)
            case EndStretches():
                self._engine.end_stretches()
            case ScorePrompt():
                await self._say(PromptScored(message.request_id, logprobs=message.request_id.encode()))

    async def _step(self) -> None:
        chosen = self._chance.random.choice(list(self._engine.chunks))
        await self._say(ChunksDone((self._engine.run(chosen),)))
        await self._say(Busy(0.0, 0.1, 5, num_rows=4))
        await self._say(EngineStats(0.0, 1, 0))

    async def _say(self, message: FromWorker) -> None:
        await self._chance.pause()
        self._out.append(from_worker.encode(message))
        self._news.set()


class Listener:
    """Nothing is to fail, whoever dies."""

    def __init__(self) -> None:
        self.errors: list[Exception] = []

    def on_failed(self, error: Exception) -> None:
        self.errors.append(error)

    def on_message(self, worker: str, message: FromWorker) -> None: ...
    def on_engine(self, sample: Any) -> None: ...
    def on_worker_lost(self, worker: str, roles: Sequence[str], failure: WorkerFailure) -> None: ...
    def on_adapters_lost(self, owners: Sequence[str], num_trainers: int) -> None: ...
    def on_reopen(self, owners: Sequence[str]) -> None: ...
    def on_trainer_ready(self) -> None: ...


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> RunSettings:
    workers = {"rollout_engines": 2, "environment_processes": 1, "max_restarts": 100}
    engine = {"max_rows": 4, "slot_tokens": 256, "pool_tokens": 256, "chunk_tokens": 5}
    return tiny_settings(tmp_path_factory.mktemp("tiny"), tiny_task("a"), workers=workers, engine=engine)


async def life(settings: RunSettings, seed: int) -> None:
    chance, listener = Chance(seed), Listener()
    made = partial(Workers, executor=FakeExecutor(chance))
    deployment = await started(lambda: RolloutDeployment(settings, settings.model.path, 1, listener, make_workers=made))

    async def generate(number: int) -> None:
        await chance.pause()
        sampling = SamplingParams(NUM_TOKENS, seed=number)
        prompt = (5, 6, number % 3)
        request = GenerationRequest(f"r{number}", "a", BASE, None, prompt, sampling, group=f"g{number % 3}")
        segment = await deployment.rollout.generate(request)
        assert (segment.tokens, segment.logprobs) == whole_generation(prompt, sampling)[:2]

    async def score(number: int) -> None:
        await chance.pause()
        scored = await deployment.scoring.score(ScorePrompt(f"s{number}", BASE, (5, 6, 7)))
        assert scored.logprobs == scored.request_id.encode() == f"s{number}".encode()

    works = [*map(generate, range(NUM_REQUESTS)), *map(score, range(NUM_PROMPTS))]
    try:
        async with asyncio.timeout(HANGS_S):
            await asyncio.gather(*works)
    finally:
        await deployment.close()
    assert not listener.errors
    assert {state.reserved_tokens for state in deployment.rollout.engines} == {0}


async def started(make: Callable[[], RolloutDeployment]) -> RolloutDeployment:
    """Who dies while all start ends the start, and it is begun again."""
    while True:
        deployment = make()
        try:
            await deployment.start()
        except WorkerFailure:
            await deployment.close()
        else:
            return deployment


def test_an_end_is_told_to_all_who_wait_also_if_the_listener_fails(settings: RunSettings) -> None:
    class Failing(Listener):
        def on_failed(self, error: Exception) -> None:
            raise ZeroDivisionError("as told")

    async def main() -> None:
        workers = Mock(return_value=Mock(engine_names=("rollout",)))
        deployment = RolloutDeployment(settings, settings.model.path, 1, Failing(), make_workers=workers)
        request = GenerationRequest("r", "a", BASE, None, (5, 6), SamplingParams(NUM_TOKENS))
        works = [deployment.rollout.generate(request), deployment.scoring.score(ScorePrompt("s", BASE, (5, 6)))]
        waiting = [asyncio.ensure_future(work) for work in works]
        await asyncio.sleep(0)
        with pytest.raises(ZeroDivisionError):
            deployment._on_failed(WorkerFailure("no more"))
        async with asyncio.timeout(HANGS_S):
            ends = await asyncio.gather(*waiting, return_exceptions=True)
        assert [str(end) for end in ends] == ["no more", "no more"]

    asyncio.run(main())


def test_whoever_dies_whenever_nothing_is_lost_and_nobody_waits_for_ever(settings: RunSettings) -> None:
    for seed in range(NUM_SEEDS):
        try:
            asyncio.run(life(settings, seed))
        except BaseException as error:
            error.add_note(f"with seed {seed}")
            raise
