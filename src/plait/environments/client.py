"""One task's environment in the pool: the Environment protocol with `await`, each stage under its own time limit."""

import asyncio
from typing import TYPE_CHECKING

from plait.config.environments import EnvironmentSettings
from plait.environments.calls import CleanupCall, CountCall, EnvironmentInfo, ExampleCall, ScoreCall, SetupCall, TurnCall
from plait.environments.protocol import Example, Reply, Score, Split, State

if TYPE_CHECKING:
    from plait.environments.pool import EnvironmentPool


class PooledEnvironment:
    """`name` is the task's. Every method raises StageFailure when the call fails."""

    def __init__(self, pool: "EnvironmentPool", name: str, settings: EnvironmentSettings, info: EnvironmentInfo) -> None:
        self.name = name
        self.settings = settings
        self.max_turns = info.max_turns
        self.stateless = info.stateless
        self._pool = pool

    async def example(self, index: int, split: Split) -> Example:
        return await self._pool.call(ExampleCall(task=self.name, index=index, split=split), self.settings.setup_timeout_s, Example)

    async def count_evaluation(self, limit: int) -> int:
        return await self._pool.call(CountCall(task=self.name, limit=limit), self.settings.setup_timeout_s, int)

    async def evaluation_examples(self, limit: int) -> tuple[Example, ...]:
        """The first held-out questions, all different; fewer than `limit` where there are no more."""
        count = await self.count_evaluation(limit)
        return tuple(await asyncio.gather(*(self.example(index, "evaluation") for index in range(count))))

    async def setup(self, example: Example) -> State:
        if self.stateless:
            return {}
        return await self._pool.call(SetupCall(task=self.name, example=example), self.settings.setup_timeout_s, State)

    async def turn(self, example: Example, state: State, answers: tuple[str, ...]) -> Reply:
        call = TurnCall(task=self.name, example=example, state=state, answers=answers)
        return await self._pool.call(call, self.settings.turn_timeout_s, Reply)

    async def score(self, example: Example, state: State, answers: tuple[str, ...]) -> Score:
        call = ScoreCall(task=self.name, example=example, state=state, answers=answers)
        return await self._pool.call(call, self.settings.score_timeout_s, Score)

    async def cleanup(self, example: Example, state: State) -> None:
        if not self.stateless:
            await self._pool.call(
                CleanupCall(task=self.name, example=example, state=state), self.settings.setup_timeout_s, type(None)
            )
