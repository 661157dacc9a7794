"""Two real engines that serve one deployment, of which one is killed."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from unittest.mock import Mock

from plait.cluster.messages import TRAIN, Busy, Configure, FromWorker, OpenTask, SetTenantWeight
from plait.cluster.model_messages import ScorePrompt
from plait.cluster.rollout_deployment import RolloutDeployment
from plait.cluster.workers import Workers
from plait.config.run import RunSettings
from plait.observe.engine_counters import COMPUTED_TOKENS
from plait.observe.events import EngineSample
from plait.rollout.request import GenerationRequest
from plait.types.errors import WorkerFailure
from plait.types.policy import PolicyVersion
from plait.types.sampling import SamplingParams
from plait.types.trajectory import Segment
from tests.runs import kill, tiny_settings, tiny_task

BASE = PolicyVersion("local", "base", 0)
NUM_REQUESTS, NUM_GROUPS, NUM_TOKENS = 12, 3, 40


class Deployment(RolloutDeployment):
    """Remembers what it is told; a lost worker's replacement comes up once `may_restart` is set."""

    def __init__(self, settings: RunSettings) -> None:
        super().__init__(settings, settings.model.path, 1, self)
        self.lost: list[str] = []
        self.samples: list[EngineSample] = []
        self.busy: Counter[str] = Counter()
        self.may_restart, self.is_back = asyncio.Event(), asyncio.Event()
        assert isinstance(self.workers, Workers)
        restart = self.workers._restart

        async def held(configuration: Configure) -> None:
            await self.may_restart.wait()
            await restart(configuration)
            self.is_back.set()

        self.workers._restart = held  # type: ignore[method-assign]

    def on_message(self, worker: str, message: FromWorker) -> None:
        if isinstance(message, Busy):
            self.busy[worker] += message.num_tokens

    def on_engine(self, sample: EngineSample) -> None:
        self.samples.append(sample)

    def on_worker_lost(self, worker: str, roles: Sequence[str], failure: WorkerFailure) -> None:
        self.lost.append(worker)

    def on_adapters_lost(self, owners: Sequence[str], num_trainers: int) -> None:
        pass

    def on_reopen(self, owners: Sequence[str]) -> None:
        pass

    def on_trainer_ready(self) -> None:
        pass

    def on_failed(self, error: Exception) -> None:
        raise error


@asynccontextmanager
async def deployment(folder: Path, num_engines: int) -> AsyncIterator[Deployment]:
    """Several engines share memory below their own."""
    workers = {"rollout_engines": num_engines, "environment_processes": 1}
    engine = {"max_rows": 4, "slot_tokens": 512, "pool_tokens": 512, "chunk_tokens": 5, "adaptive_concurrency": False}
    engine |= {"host_tokens": 16384} if num_engines > 1 else {}
    made = Deployment(tiny_settings(folder, tiny_task("a"), workers=workers, engine=engine))
    await made.start()
    try:
        yield made
    finally:
        made.may_restart.set()
        await made.close()


def requests() -> list[GenerationRequest]:
    return [
        GenerationRequest(
            f"r{n}", "a", BASE, None, (5, 6, 7, n % NUM_GROUPS), SamplingParams(NUM_TOKENS, seed=n), group=f"g{n % NUM_GROUPS}"
        )
        for n in range(NUM_REQUESTS)
    ]  # fmt: skip


async def generate(rollouts: Deployment, on_tokens: Callable[[int], None] = lambda num_tokens: None) -> list[Segment]:
    """All requests; `on_tokens` hears how many tokens have come back."""
    wanted, num_tokens = requests(), 0

    def heard(result: Any) -> None:
        nonlocal num_tokens
        num_tokens += len(result.tokens)
        on_tokens(num_tokens)

    for request in wanted:
        request.on_chunk = heard
    return await asyncio.gather(*(rollouts.rollout.generate(request) for request in wanted))


def test_requests_of_a_killed_engine_go_on_at_the_other_with_the_same_tokens(tmp_path: Path) -> None:
    async def undisturbed() -> list[Segment]:
        async with deployment(tmp_path, num_engines=1) as rollouts:
            assert rollouts.workers.names == ("rollout", "train")
            return await generate(rollouts)

    async def disturbed() -> list[Segment]:
        async with deployment(tmp_path, num_engines=2) as rollouts:
            assert rollouts.workers.names == ("rollout-0", "rollout-1", "train")
            killed: list[int] = []

            def kill_once(num_tokens: int) -> None:
                state = rollouts.rollout.engines[0]
                if num_tokens > NUM_REQUESTS * NUM_TOKENS // 3 and state.num_rows and not killed:
                    killed.append(rollouts.workers.pids["rollout-0"])
                    kill(killed[0])

            scoring = asyncio.create_task(score_until(rollouts, killed))
            segments = await generate(rollouts, kill_once)
            assert (rollouts.lost, rollouts.is_back.is_set()) == (["rollout-0"], False)
            await scoring
            rollouts.may_restart.set()
            await rollouts.is_back.wait()
            assert [state.reserved_tokens for state in rollouts.rollout.engines] == [0, 0]
            assert await generate(rollouts) == segments, "with the replacement"
            async with asyncio.timeout(60):
                while not (rollouts.busy["rollout-0"] and {each.engine for each in rollouts.samples} == {"rollout-0", "rollout-1"}):
                    await asyncio.sleep(0.01)
            computed = {sample.engine: sample.counters[COMPUTED_TOKENS] for sample in rollouts.engine_samples}
            assert computed["rollout-0"] == 0, "the replacement finds what the lost one and the other had stored"
            assert computed["rollout-1"] <= NUM_GROUPS * 3, "prompts at most: what was drawn before the loss is not computed again"
            return segments

    async def score_until(rollouts: Deployment, killed: list[int]) -> None:
        """Prompts are scored all the while, each once."""
        number = 0
        while not killed or number < 4:
            prompts = [ScorePrompt(f"s{number + n}", BASE, (5, 6, 7, 8)) for n in range(4)]
            scored = await asyncio.gather(*(rollouts.scoring.score(prompt) for prompt in prompts))
            assert len({message.logprobs for message in scored}) == 1
            number += 4

    segments = asyncio.run(disturbed())
    assert all(len(segment.tokens) == NUM_TOKENS for segment in segments)
    assert segments == asyncio.run(undisturbed())


def test_engines_are_named_and_numbered(tmp_path: Path) -> None:
    settings = tiny_settings(tmp_path, tiny_task("a"), workers={"rollout_engines": 3, "environment_processes": 1})
    made = RolloutDeployment(settings, "model", 1, Mock())
    assert made.workers.engine_names == ("rollout-0", "rollout-1", "rollout-2")
    assert made.workers.names == (*made.workers.engine_names, "train")
    assert sorted(made.concurrency) == list(made.workers.engine_names)


class Listener(Mock):
    """Tells a new trainer a weight, as a service does."""

    made: RolloutDeployment

    def on_trainer_ready(self) -> None:
        self.made.train(SetTenantWeight("ana", 2.0))


def test_a_replaced_trainer_is_told_the_weights_and_workers_may_be_of_another_making(tmp_path: Path) -> None:
    settings, listener, workers = tiny_settings(tmp_path, tiny_task("a")), Listener(), Mock(engine_names=("rollout",))
    listener.made = made = RolloutDeployment(settings, "model", 1, listener, make_workers=lambda *_: workers)
    made.train(OpenTask("ana", "{}", "folder", 1, "a"))
    made._on_lost("train", (TRAIN,), WorkerFailure("gone"))
    listener.on_adapters_lost.assert_called_once_with(("a",), 0)
    workers.send_to.reset_mock()
    made._on_ready("train", (TRAIN,))
    listener.on_reopen.assert_called_once_with(["a"])
    workers.send_to.assert_called_once_with("train", SetTenantWeight("ana", 2.0))
