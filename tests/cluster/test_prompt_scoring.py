"""Prompts over engines that come and go."""

import asyncio

import pytest

from plait.cluster.messages import CancelRequests
from plait.cluster.model_messages import PromptScored, ScorePrompt
from plait.cluster.prompt_scoring import PromptScoring
from plait.types.policy import PolicyVersion
from tests.rollout.on_loop import on_loop, settle

POLICY = PolicyVersion("local", "base", 0)


class Scoring(PromptScoring):
    def __init__(self) -> None:
        self.sent: list[tuple[str, str]] = []
        self.cancelled: list[tuple[str, str]] = []
        super().__init__(self._note)

    def _note(self, engine: str, message: ScorePrompt | CancelRequests) -> None:
        if isinstance(message, ScorePrompt):
            self.sent.append((engine, message.request_id))
        else:
            self.cancelled += [(engine, request_id) for request_id in message.request_ids]

    def start(self, *names: str) -> "list[asyncio.Task[PromptScored]]":
        return [asyncio.create_task(self.score(ScorePrompt(name, POLICY, (1, 2)))) for name in names]


@on_loop
async def test_prompts_are_spread_and_each_goes_to_one_engine() -> None:
    scoring = Scoring()
    scoring.attach("e0")
    scoring.attach("e1")
    jobs = scoring.start("a", "b", "c", "d")
    await settle()
    assert sorted(scoring.sent) == [("e0", "a"), ("e0", "c"), ("e1", "b"), ("e1", "d")]
    for name in "abcd":
        scoring.on_scored(PromptScored(name))
    assert [(await job).request_id for job in jobs] == ["a", "b", "c", "d"]


@on_loop
async def test_a_lost_engines_prompts_go_to_another_or_wait_for_one() -> None:
    scoring = Scoring()
    (first,) = scoring.start("a")
    await settle()
    assert scoring.sent == []
    scoring.attach("e0")
    scoring.attach("e1")
    scoring.detach("e0")
    scoring.detach("e0")
    scoring.detach("e1")
    assert scoring.sent == [("e0", "a"), ("e1", "a")]
    scoring.attach("e0")
    assert scoring.sent[-1] == ("e0", "a")
    scoring.on_scored(PromptScored("a"))
    scoring.on_scored(PromptScored("a"))  # Of the lost engine, late.
    assert (await first).request_id == "a"
    scoring.detach("e0")
    scoring.attach("e2")
    assert len(scoring.sent) == 3, "what is scored is not sent again"


@on_loop
async def test_when_there_will_be_no_engine_all_end() -> None:
    scoring = Scoring()
    jobs = scoring.start("a", "b")
    await settle()
    scoring.fail_all(ZeroDivisionError("no more"))
    for job in jobs:
        with pytest.raises(ZeroDivisionError, match="no more"):
            await job


@on_loop
async def test_an_engine_that_comes_twice_is_one_and_gets_what_the_first_had() -> None:
    """It was lost and replaced before anybody was told that it had come at all."""
    scoring = Scoring()
    (job,) = scoring.start("a")
    scoring.attach("e0")
    await settle()
    scoring.attach("e0")
    assert scoring.sent == [("e0", "a"), ("e0", "a")]
    scoring.detach("e0")
    (late,) = scoring.start("b")
    await settle()
    assert len(scoring.sent) == 2, "nobody is there"
    scoring.attach("e0")
    assert scoring.sent[2:] == [("e0", "a"), ("e0", "b")]
    for name in "ab":
        scoring.on_scored(PromptScored(name))
    await asyncio.gather(job, late)


@on_loop
async def test_what_nobody_waits_for_is_cancelled_at_its_engine() -> None:
    scoring = Scoring()
    scoring.attach("e0")
    given_up, scored = scoring.start("a", "b")
    await settle()
    scoring.detach("e0")
    (unsent,) = scoring.start("c")
    await settle()
    unsent.cancel()
    await asyncio.gather(unsent, return_exceptions=True)
    assert not scoring.cancelled, "it was nowhere"
    scoring.attach("e0")
    given_up.cancel()
    scoring.on_scored(PromptScored("b"))
    await asyncio.gather(given_up, scored, return_exceptions=True)
    assert scoring.cancelled == [("e0", "a")]
