"""Real engines that share no memory: one takes a conversation over from another, and what it lacks is pulled for it."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from plait.cluster.kv_tiers import STORE_FOLDER
from plait.cluster.rollout_deployment import RolloutDeployment
from plait.kv.block_log import DEVICE, STORE, BlockNews
from plait.kv.chain import chain
from plait.kv.pool import BLOCK_TOKENS
from plait.observe.engine_counters import COMPUTED_TOKENS, DECODED_TOKENS, HIT_TOKENS
from plait.rollout.context_scheduler import ContextScheduler
from plait.rollout.engine_state import EngineState
from plait.rollout.holdings import Holdings
from plait.rollout.prefix_routing import PrefixRouter
from plait.rollout.request import GenerationRequest
from plait.rollout.routing import GroupKey
from plait.types.chunks import NOTHING_BELOW, PullFrom
from plait.types.sampling import SamplingParams
from plait.types.trajectory import Segment
from tests.cluster.test_store_deployment import BASE, FILES, THREADS, deployment, engines_on_several_nodes

__all__ = ["engines_on_several_nodes"]

PROMPT = tuple(range(5, 25))
NUM_TOKENS = 4 * BLOCK_TOKENS + 1 - len(PROMPT)
"""What is computed of prompt and answer fills its blocks."""


class Steered(PrefixRouter):
    """Goes by `engine` as long as one is named, and remembers what was to be pulled."""

    engine = ""

    def __init__(self) -> None:
        super().__init__(Holdings(is_apart=True))
        self.chosen: list[tuple[str, PullFrom]] = []

    def choose(self, request: GenerationRequest, group: GroupKey, candidates: Sequence[EngineState]) -> str:
        return self.engine or super().choose(request, group, candidates)

    def pull(self, request: GenerationRequest, group: GroupKey, engine: str) -> PullFrom:
        pull = super().pull(request, group, engine)
        self.chosen.append((engine, pull))
        return pull


def turn(name: str, context: tuple[int, ...], num_tokens: int) -> GenerationRequest:
    return GenerationRequest(name, "a", BASE, None, context, SamplingParams(num_tokens, seed=len(name)), keep_cache=True)


def third_of(first: Segment) -> tuple[int, ...]:
    """Begins like the first turn, and parts from it with the answer."""
    return (*PROMPT, (first.tokens[0] + 1) % 90, 4)


async def converse(rollouts: RolloutDeployment, between: Callable[[Segment], Any] | None = None) -> list[Segment]:
    """Two turns, and a third that is none of theirs."""
    first = await rollouts.rollout.generate(turn("first", PROMPT, NUM_TOKENS))
    if between is not None:
        await between(first)
    second = await rollouts.rollout.generate(turn("second", (*PROMPT, *first.tokens, 7, 8, 9), 6))
    return [first, second, await rollouts.rollout.generate(turn("third one", third_of(first), 6))]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> list[Segment]:
    """What one engine gives, without lower tiers."""

    async def main() -> list[Segment]:
        async with deployment(tmp_path_factory.mktemp("plain"), 1, THREADS, {}) as rollouts:
            return await converse(rollouts)

    return asyncio.run(asyncio.wait_for(main(), 120))


def keys_of(router: Steered, tokens: tuple[int, ...]) -> list[bytes]:
    return [link.key for link in chain(router.root_of(turn("", PROMPT, 1)), tokens[:-1], BLOCK_TOKENS)]


def test_the_prefix_is_pulled_and_not_computed_again(tmp_path: Path, plain: list[Segment]) -> None:
    router = Steered()
    router.engine = "rollout-0"

    async def main() -> tuple[list[Segment], dict[str, float]]:
        async with deployment(tmp_path, 2, THREADS, FILES | {"chunk_tokens": 64}, ContextScheduler(router=router)) as rollouts:

            async def move(first: Segment) -> None:
                keys = keys_of(router, (*PROMPT, *first.tokens))
                await written(tmp_path / "run" / "kv" / STORE_FOLDER / "rollout-0", keys)
                assert router.holdings.at_hand("rollout-0", keys) == (4, 4)
                assert router.holdings.at_hand("rollout-1", keys) == (0, 0)
                router.engine, lies = "rollout-1", keys_of(router, third_of(first))
                router.holdings.heard("rollout-0", [BlockNews(STORE, lies[-1])])

            segments = await converse(rollouts, move)
            return segments, await counters(rollouts, "rollout-1", sum(len(one.tokens) for one in segments[1:]))

    segments, counts = asyncio.run(asyncio.wait_for(main(), 120))
    assert segments == plain
    assert router.chosen[:2] == [("rollout-0", NOTHING_BELOW), ("rollout-1", PullFrom(STORE, 4 * BLOCK_TOKENS))]
    assert router.chosen[2] == ("rollout-1", PullFrom(STORE, len(PROMPT) + 1)), "which is not there"
    assert counts[HIT_TOKENS["store"]] == 4 * BLOCK_TOKENS
    assert counts[COMPUTED_TOKENS] == 3 + 1, "the last token drawn and what is new in the second turn, and in the third"
    assert (counts["pulls"], counts["pulled_bytes"] > 0) == (1, True)
    assert counts["store_misses"] == 1, "of the third: where nothing is said to be, nobody looks"


async def written(folder: Path, keys: Sequence[bytes]) -> None:
    """The blocks are in the store."""
    while not all((folder / key.hex()).exists() for key in keys):
        await asyncio.sleep(0.01)


async def counters(rollouts: RolloutDeployment, engine: str, num_drawn: int) -> Any:
    """Of an engine that has told of so many tokens."""
    while True:
        found = {sample.engine: sample.counters for sample in rollouts.engine_samples}.get(engine, {})
        if found.get(DECODED_TOKENS) == num_drawn:
            return found
        await asyncio.sleep(0.01)


def test_turns_go_where_their_beginning_is_said_to_be_and_lies_change_no_token(tmp_path: Path, plain: list[Segment]) -> None:
    """Without tiers below the engines' own."""
    router = Steered()

    async def main() -> tuple[list[Segment], dict[str, float]]:
        async with deployment(tmp_path, 2, THREADS, {"chunk_tokens": 64}, ContextScheduler(router=router)) as rollouts:
            router.holdings.heard("rollout-1", [BlockNews(DEVICE, b"".join(keys_of(router, PROMPT)))])
            segments = await converse(rollouts)
            return segments, await counters(rollouts, "rollout-1", sum(len(one.tokens) for one in segments))

    segments, counts = asyncio.run(asyncio.wait_for(main(), 120))
    assert segments == plain
    assert router.chosen == [("rollout-1", NOTHING_BELOW)] * 3
    assert counts[COMPUTED_TOKENS] == len(PROMPT) - 1 + 3 + 1, "nothing twice"
