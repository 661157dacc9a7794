"""Runs a task's episodes against the shared rollout service and its environment."""

import asyncio
import itertools
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from plait.config.run import RunSettings
from plait.config.task import TaskSettings
from plait.environments.episode import OnFailure, run_episode
from plait.environments.pool import EnvironmentPool
from plait.environments.protocol import Example
from plait.models.tokenizer import Tokenizer
from plait.rollout.request import GenerationRequest
from plait.tasks.compute import Generator
from plait.tasks.phase_clock import PhaseClock
from plait.types.policy import AdapterRef
from plait.types.sampling import SamplingParams
from plait.types.trajectory import Segment, Trajectory

_numbers = itertools.count()
"""Request ids never repeat within a process, also when an episode is retried."""


class EpisodeRunner:
    """`run` gives one trajectory. `clock` is told when the episode generates and when it waits."""

    def __init__(
        self,
        settings: RunSettings,
        tokenizers: Mapping[str, Tokenizer],
        environments: EnvironmentPool,
        rollout_of: Callable[[str], Generator],
    ) -> None:
        """`tokenizers` by task; `rollout_of` a task is what generates for it."""
        self.settings, self.tokenizers, self.environments, self.rollout_of = settings, tokenizers, environments, rollout_of
        self._context_tokens = {
            task.name: settings.of_model(settings.model_of(task)).model.max_context_tokens for task in settings.tasks
        }

    async def run(
        self,
        task: TaskSettings,
        ref: AdapterRef,
        queue: str,
        example: Example,
        group: int,
        sample: int,
        params: SamplingParams,
        clock: PhaseClock,
        on_failure: OnFailure,
        siblings: str = "",
    ) -> Trajectory:
        """`siblings` names the episodes of the same question under the same policy; empty: it is alone."""
        kept: list[str] = []
        rollout = self.rollout_of(task.name)

        async def generate(context_tokens: tuple[int, ...], turn: int, keep_cache: bool) -> Segment:
            request_id = f"{queue}/{next(_numbers)}/{turn}"
            request = GenerationRequest(request_id, queue, ref.policy, ref, context_tokens, params, keep_cache)
            request.group = f"{siblings}/{turn}" if siblings else ""
            clock.generating(1, time.time())
            try:
                return await rollout.generate(request)
            finally:
                kept.append(request.kept_handle)
                clock.generating(-1, time.time())

        clock.in_environment(1, time.time())
        try:
            return await run_episode(
                self.environments.environment(task.name), self.tokenizers[task.name], generate, task.environment, example,
                group, sample, max_new_tokens=params.max_new_tokens, max_context_tokens=self._context_tokens[task.name],
                on_failure=on_failure,
            )  # fmt: skip
        finally:
            rollout.release(kept)
            clock.in_environment(-1, time.time())


async def all_or_none(jobs: Sequence[Coroutine[Any, Any, Trajectory]]) -> list[Trajectory]:
    """Run together; when one raises, the others are cancelled before its exception goes on."""
    tasks = [asyncio.ensure_future(job) for job in jobs]
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise
