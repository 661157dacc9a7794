"""What a worker group is to have on the device soon. Pure.

- The deployment of the call that would run next comes to the device beside the call that runs, if it fits there beside what runs
  and what has calls that wait. Who has none leaves for it, the least recently used first. Else it comes near, into main memory.
- One comes during each call: as new calls change the order, they are not to displace one another.
"""

from collections.abc import Collection
from typing import Protocol

from plait.cluster.groups.function_calls import HOST
from plait.cluster.groups.messages import Prefetch
from plait.scheduling.function_call import FunctionCall
from plait.scheduling.group_queue import GroupQueue


class Residents(Protocol):
    """`ResidentSet` says what these mean."""

    @property
    def resident(self) -> tuple[str, ...]: ...

    def stage(self, deployment: str, kept: Collection[str]) -> tuple[str, ...] | None: ...


class Lookahead:
    def __init__(self, queue: GroupQueue, residents: Residents) -> None:
        self._queue, self._residents = queue, residents
        self._told = ""
        """Whose turn it was when the process was last told."""
        self._staged_during = ""
        """The call beside which a deployment was last brought onto the device."""

    def frames(self, now_s: float) -> list[Prefetch]:
        """Once for each deployment whose turn comes."""
        running = self._queue.running
        following = self._queue.peek(now_s) if running is not None else None
        name = "" if following is None or following.function == HOST else following.deployment
        is_news, self._told = name != self._told, name
        if running is None or not name or not is_news or name in self._residents.resident:
            return []
        return [Prefetch(name, self._leaving(name, running))]

    def _leaving(self, deployment: str, running: FunctionCall) -> tuple[str, ...] | None:
        if running.function == HOST or running.call_id == self._staged_during:
            return None
        waiting = [name for name in self._residents.resident if self._queue.waiting(name).num_calls]
        leaving = self._residents.stage(deployment, {running.deployment, *waiting})
        if leaving is not None:
            self._staged_during = running.call_id
        return leaving
