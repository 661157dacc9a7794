"""One episode: questions and answers in turn, then a score. Tokens in, tokens out.

- What was sampled is never encoded again: the next context is the old ids, the sampled ids, and the ids of the new message.
- A failure of the environment starts the episode again from zero, `max_episode_retries` times; then it is raised.
- With `require_stop`, an answer that ended for lack of room is the policy's fault: reward 0, and nobody is asked.
- Clean-up always runs. Its failure is reported, and does not undo the score.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

from plait.config.environments import EnvironmentSettings
from plait.environments.delay import delay_s
from plait.environments.protocol import Example, Reply, Score, State
from plait.types.errors import EnvironmentFailure, WorkerFailure
from plait.types.messages import Message
from plait.types.sampling import StopReason
from plait.types.trajectory import Segment, Trajectory

STOPPED_BY_POLICY = (StopReason.STOP_TOKEN, StopReason.STOP_STRING)
NOT_SERVED = (StopReason.FAILED, StopReason.CANCELLED, StopReason.BUDGET)

Result = TypeVar("Result")
Generate = Callable[[tuple[int, ...], int, bool], Awaitable[Segment]]
"""(context tokens, turn, keep the cache for a later turn) -> the sampled answer of that turn."""
OnWait = Callable[[float, float], None]
"""Called with start and end (seconds since the epoch) of every wait for the environment."""
OnFailure = Callable[[EnvironmentFailure], None]
"""Called for every failure, also one that is retried."""


class EpisodeTokenizer(Protocol):
    def decode_text(self, tokens: Sequence[int]) -> str: ...
    def render_prompt(self, messages: Sequence[Message]) -> tuple[int, ...]: ...
    def render_followup(self, message: Message, previous_ended: bool) -> tuple[int, ...]: ...


class EpisodeEnvironment(Protocol):
    """What an episode needs of a `PooledEnvironment`."""

    name: str
    max_turns: int

    async def setup(self, example: Example) -> State: ...
    async def turn(self, example: Example, state: State, answers: tuple[str, ...]) -> Reply: ...
    async def score(self, example: Example, state: State, answers: tuple[str, ...]) -> Score: ...
    async def cleanup(self, example: Example, state: State) -> None: ...


async def run_episode(
    environment: EpisodeEnvironment,
    tokenizer: EpisodeTokenizer,
    generate: Generate,
    settings: EnvironmentSettings,
    example: Example,
    group_index: int,
    sample_index: int,
    *,
    max_new_tokens: int,
    max_context_tokens: int,
    on_wait: OnWait | None = None,
    on_failure: OnFailure | None = None,
) -> Trajectory:
    """Run one episode to its score. `max_new_tokens` is per turn; a turn that could exceed the context is not begun.

    Raises EnvironmentFailure when the retries are used up, and whatever `generate` raises.
    """
    report = on_failure or (lambda failure: None)
    attempts_left = settings.max_episode_retries
    while True:
        episode = _Episode(environment, tokenizer, generate, settings, example, sample_index, on_wait, report)
        try:
            stop, score = await episode.run(max_new_tokens, max_context_tokens)
        except EnvironmentFailure as failure:
            report(failure)
            if attempts_left == 0:
                raise
            attempts_left -= 1
        else:
            return Trajectory(
                environment=environment.name,
                example_id=example.example_id,
                group_index=group_index,
                sample_index=sample_index,
                segments=tuple(episode.segments),
                reward=score.reward,
                stop=stop,
                metrics=score.metrics,
            )


class _Episode:
    """One attempt."""

    def __init__(
        self,
        environment: EpisodeEnvironment,
        tokenizer: EpisodeTokenizer,
        generate: Generate,
        settings: EnvironmentSettings,
        example: Example,
        sample_index: int,
        on_wait: OnWait | None,
        on_failure: OnFailure,
    ) -> None:
        self._environment = environment
        self._tokenizer = tokenizer
        self._generate = generate
        self._settings = settings
        self._example = example
        self._sample_index = sample_index
        self._on_wait = on_wait
        self._on_failure = on_failure
        self._state: State = {}
        self._answers: tuple[str, ...] = ()
        self.segments = [Segment(tokenizer.render_prompt(example.messages))]

    async def run(self, max_new_tokens: int, max_context_tokens: int) -> tuple[str, Score]:
        try:
            self._state = await self._wait(lambda: self._environment.setup(self._example))
            stop = await self._converse(max_context_tokens - max_new_tokens)
            return stop, await self._score(stop)
        finally:
            await self._clean_up()

    async def _converse(self, max_prompt_tokens: int) -> str:
        """Take turns until somebody ends it; return why it ended."""
        for turn in range(self._environment.max_turns):
            is_last = turn + 1 == self._environment.max_turns
            context = tuple(token for segment in self.segments for token in segment.tokens)
            if len(context) > max_prompt_tokens:
                return StopReason.CONTEXT
            segment = await self._answer(context, turn, not is_last)
            if is_last or self._is_cut_off(segment.stop) or not await self._react(segment, turn):
                return segment.stop
        return StopReason.CONTEXT

    async def _answer(self, context: tuple[int, ...], turn: int, keep_cache: bool) -> Segment:
        segment = await self._generate(context, turn, keep_cache)
        if segment.stop in NOT_SERVED:
            raise WorkerFailure(
                f"turn {turn} of {self._environment.name}/{self._example.example_id} was not served: {segment.stop}."
            )
        self.segments.append(segment)
        self._answers += (self._tokenizer.decode_text(segment.tokens),)
        return segment

    async def _react(self, segment: Segment, turn: int) -> bool:
        """Let the environment take its turn; False if the episode is over."""
        reply = await self._wait(lambda: self._environment.turn(self._example, self._state, self._answers), turn)
        self._state = reply.state
        if reply.message is None:
            return False
        tokens = self._tokenizer.render_followup(reply.message, segment.stop == StopReason.STOP_TOKEN)
        self.segments.append(Segment(tokens))
        return True

    async def _score(self, stop: str) -> Score:
        if not self._answers or self._is_cut_off(stop):
            return Score(0.0)
        return await self._wait(lambda: self._environment.score(self._example, self._state, self._answers), len(self._answers))

    def _is_cut_off(self, stop: str) -> bool:
        return self._settings.require_stop and stop not in STOPPED_BY_POLICY

    async def _clean_up(self) -> None:
        try:
            await self._wait(lambda: self._environment.cleanup(self._example, self._state))
        except EnvironmentFailure as failure:
            self._on_failure(failure)

    async def _wait(self, call: Callable[[], Awaitable[Result]], turn: int | None = None) -> Result:
        """Wait for the environment, with the artificial delay of turns and scoring before it."""
        start_s = time.time()
        try:
            if turn is not None:
                settings = self._settings
                await _sleep(delay_s(settings.delay, settings.seed, self._example.example_id, self._sample_index, turn))
            return await call()
        finally:
            if self._on_wait is not None:
                self._on_wait(start_s, time.time())


async def _sleep(seconds: float) -> None:
    if seconds > 0:
        await asyncio.sleep(seconds)
