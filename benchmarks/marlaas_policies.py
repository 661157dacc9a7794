"""What the compared systems do otherwise than Plait, as policies for Plait's own driver; those that the simulator has too are its.

- `OneAtATime`, `Rounds`, `ExclusiveBuffer`: see `plait.simulation.baselines`.
- `StagedRollout`: no environment answers before all generations under way have ended.
- `AfterWarmUp`: whatever the policy, one task runs first that is not measured.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from plait.rollout.request import GenerationRequest
from plait.rollout.service import RolloutService
from plait.simulation.baselines import (
    ExclusiveBuffer,
    NoPolicy,
    OneAtATime,
    PolicedManager,
    Policy,
    Rounds,
    exclusive_scheduler,
    police,
)
from plait.tasks.commands import Command, StopTask
from plait.types.trajectory import Segment

__all__ = [
    "AfterWarmUp", "ExclusiveBuffer", "NoPolicy", "OneAtATime", "PolicedManager", "Policy", "Rounds", "StagedRollout",
    "exclusive_scheduler", "police",
]  # fmt: skip


class AfterWarmUp:
    """The task `first` runs alone, then all others under `policy`."""

    def __init__(self, first: str, policy: Policy) -> None:
        self._first, self._policy = first, policy
        self._held: list[Command] | None = []
        """What waits for the end of the first task; None after it."""

    def take(self, event: str, task: str, commands: Sequence[Command]) -> list[Command]:
        if self._held is None:
            return self._policy.take(event, task, commands)
        if task != self._first:
            self._held += commands
            return []
        if not any(isinstance(command, StopTask) for command in commands):
            return list(commands)
        held, self._held = self._held, None
        return [*commands, *self._policy.take("add", task, held)]


class StagedRollout:
    """A `RolloutService` to its callers: an answer is given out when none is being generated any more."""

    def __init__(self, service: RolloutService) -> None:
        self._service = service
        self._num_running = 0
        self._stage_ended = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._service, name)

    async def generate(self, request: GenerationRequest) -> Segment:
        stage_ended = self._stage_ended
        self._num_running += 1
        try:
            segment = await self._service.generate(request)
        finally:
            self._num_running -= 1
            if self._num_running == 0:
                self._stage_ended.set()
                self._stage_ended = asyncio.Event()
        await stage_ended.wait()
        return segment
