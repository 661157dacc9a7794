"""Client-driven models in real worker processes: sampling and scoring beside training, and a worker that is killed."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest

from plait.cluster.client import WorkerClient
from plait.cluster.messages import (
    ROLLOUT,
    TRAIN,
    Busy,
    CancelRequests,
    ChunksDone,
    Configure,
    EngineStats,
    FromWorker,
    Starting,
    SubmitChunks,
    ToWorker,
)
from plait.cluster.model_messages import (
    CallDone,
    CallFailed,
    ForwardBackward,
    ModelOpened,
    OpenModel,
    PromptScored,
    ScorePrompt,
)
from plait.models.tiny import make_tiny_model
from plait.types.chunks import Chunk
from plait.types.errors import WorkerFailure
from plait.types.lora import LoraConfig
from plait.types.policy import AdapterRef, PolicyVersion
from plait.types.sampling import SamplingParams
from tests.cluster.models import backward, data, forward, rows, save, step

LORA = LoraConfig(rank=4, alpha=8.0, target_modules=("q_proj", "v_proj", "down_proj"), seed=3)
BASE = PolicyVersion("local", "base", 0)
Kind = TypeVar("Kind", bound=FromWorker)


@pytest.fixture(scope="module")
def model_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("model"), hidden_size=128, intermediate_size=256, head_dim=64)


class Peer:
    """The controller's side: sends, and waits for an answer of a kind."""

    def __init__(self, model_path: Path) -> None:
        settings = Configure(
            name="worker", roles=(ROLLOUT, TRAIN), model_path=str(model_path), dtype="float32", device="cpu", threads=1,
            max_context_tokens=128, max_rows=4, slot_tokens=512, pool_tokens=512, batch_invariant="off",
            micro_batch_tokens=64, checkpoint_layers=False, num_tasks=2,
        )  # fmt: skip
        self.messages: asyncio.Queue[FromWorker | WorkerFailure] = asyncio.Queue()
        self.client = WorkerClient(settings, self.messages.put_nowait, self.messages.put_nowait)

    async def call(self, message: ToWorker, kind: type[Kind]) -> Kind:
        self.client.send(message)
        return await self.answer(kind)

    async def answer(self, kind: type[Kind]) -> Kind:
        """The next message that does not tell of work done meanwhile."""
        async with asyncio.timeout(240):
            while isinstance(message := await self.messages.get(), Busy | EngineStats | Starting):
                pass
        assert isinstance(message, kind), message
        return message

    async def kill(self) -> None:
        os.kill(self.client.pid, signal.SIGKILL)
        async with asyncio.timeout(240):
            while not isinstance(await self.messages.get(), WorkerFailure):
                pass

    async def train(self, seq_id: int, seed: int) -> CallDone:
        await self.call(backward(seq_id, data(seed)), CallDone)
        return await self.call(step(seq_id + 1), CallDone)


@asynccontextmanager
async def worker(model_path: Path) -> AsyncIterator[Peer]:
    peer = Peer(model_path)
    await peer.client.start()
    try:
        yield peer
    finally:
        await peer.client.close()


def opening(folder: Path) -> OpenModel:
    return OpenModel("a", "local", LORA, str(folder / "a"))


def on_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run an asynchronous test; its fixtures by name."""

    def run(model_path: Path, tmp_path: Path) -> None:
        asyncio.run(test(model_path, tmp_path))

    return run


def scored(message: PromptScored) -> list[float]:
    assert not message.error
    return np.frombuffer(message.logprobs, "<f4").tolist()


def chunk(request_id: str, adapter: AdapterRef | None, tokens: tuple[int, ...]) -> Chunk:
    policy = adapter.policy if adapter else BASE
    return Chunk(request_id, policy, tokens, 8, SamplingParams(8, seed=7), adapter)


@on_loop
async def test_a_killed_workers_model_goes_on_with_the_calls_repeated(model_path: Path, folder: Path) -> None:
    async with worker(model_path) as peer:
        await peer.call(opening(folder / "whole"), ModelOpened)
        whole = [await peer.train(2 * n + 1, seed=n) for n in range(3)]
        await peer.call(opening(folder), ModelOpened)
        await peer.train(1, seed=0)
        await peer.train(3, seed=1)
        await peer.call(backward(5, data(2)), CallDone)
        peer.client.send(step(6))
        peer.client.send(backward(7, data(3) * 10))
        await peer.kill()
    async with worker(model_path) as peer:
        opened = await peer.call(opening(folder), ModelOpened)
        assert opened.seq_id in (4, 6), "the step that was under way is there whole or not at all"
        last = opened.ref if opened.seq_id == 6 else (await peer.train(5, seed=2)).ref
    assert last.digest == whole[-1].ref.digest
    assert last.policy.version == 3


@on_loop
async def test_sampling_and_scoring_a_snapshot_leaves_training_alone(model_path: Path, folder: Path) -> None:
    async with worker(model_path) as peer:
        await peer.call(opening(folder), ModelOpened)
        await peer.train(1, seed=0)
        snapshot = (await peer.call(save(3, folder / "snapshot", with_optimizer=False), CallDone)).ref
        trained = await peer.train(4, seed=1)
        live = rows(await peer.call(forward(6), CallDone))
        prompt = (5, 6, 7, 8)
        drawn = (await peer.call(SubmitChunks((chunk("c", snapshot, prompt),)), ChunksDone)).results[0]
        assert not drawn.error
        tokens = prompt + drawn.tokens
        old = scored(await peer.call(ScorePrompt("s", snapshot.policy, tokens, snapshot), PromptScored))
        new = scored(await peer.call(ScorePrompt("n", trained.ref.policy, tokens, trained.ref), PromptScored))
        assert old[len(prompt) :] == pytest.approx(list(drawn.logprobs), abs=1e-5)
        assert new[1:] != pytest.approx(old[1:], abs=1e-5)
        assert rows(await peer.call(forward(7), CallDone)) == live


@on_loop
async def test_scores_decoding_and_training_share_a_worker(model_path: Path, folder: Path) -> None:
    async with worker(model_path) as peer:
        await peer.call(opening(folder), ModelOpened)
        peer.client.send(backward(1, data(0, num_groups=100)))
        peer.client.send(SubmitChunks(tuple(chunk(f"c{n}", None, (5, 6, n + 9)) for n in range(4))))
        for n in range(20):
            peer.client.send(ScorePrompt(f"s{n}", BASE, tuple(range(5, 15 + n)), temperature=0.7, top_k=2, num_alternatives=1))
        found: list[FromWorker] = []
        while not any(isinstance(m, CallDone) for m in found):
            found.append(await peer.answer(FromWorker))  # type: ignore[arg-type]
        assert sum(len(m.results) for m in found if isinstance(m, ChunksDone)) == 4, "the long call did not hold it up"
        scores = [m for m in found if isinstance(m, PromptScored)]
        assert {m.request_id for m in scores} == {f"s{n}" for n in range(20)}
        assert all(len(m.top_ids) == 4 * 2 * len(scored(m)) and m.device_s > 0 for m in scores)


@on_loop
async def test_prompts_that_cannot_be_scored_say_so(model_path: Path, folder: Path) -> None:
    async with worker(model_path) as peer:
        for bad in (
            ScorePrompt("b", BASE, (5, 6), num_targets=2, targets=b"1234"),
            ScorePrompt("b", BASE, (5, 6), targets=b"1234"),
            ScorePrompt("b", BASE, (5,) * 500),
        ):
            failed = await peer.call(bad, PromptScored)
            assert failed.is_user_error
            assert failed.error
        gone = AdapterRef(PolicyVersion("local", "a", 1), str(folder / "nowhere"), "0")
        failed = await peer.call(ScorePrompt("g", gone.policy, (5, 6), gone), PromptScored)
        assert "nowhere" in failed.error
        assert not failed.is_user_error
        peer.client.send(CancelRequests(("g",)))
        refused = await peer.call(ForwardBackward("a", 1, (), "{}"), CallFailed)
        assert "not open" in refused.error
