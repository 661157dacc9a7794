"""A deployment on its way to the device beside the call that runs, and those that leave for it.

One at a time, on the thread that copies. Room is taken first; where there is not enough, it stays where it was. As long as a
deployment is involved nobody else touches it.
"""

import time
from collections.abc import Sequence
from concurrent.futures import Future
from typing import NamedTuple

from plait.cluster.groups.device_state import DeviceState
from plait.cluster.groups.group_memory import GroupMemory
from plait.types.errors import CapacityError


class Staged(NamedTuple):
    deployment: str
    spent_s: float
    """Beside calls; 0 if it did not come to it."""
    waited_s: float
    """By whoever wanted to go on."""


class Staging:
    def __init__(self, memory: GroupMemory) -> None:
        self._memory = memory
        self._arriving: DeviceState | None = None
        self._leaving: tuple[DeviceState, ...] = ()
        self._future: Future[object] | None = None
        self._spent_s = 0.0

    @property
    def is_under_way(self) -> bool:
        return self._future is not None

    @property
    def is_over(self) -> bool:
        """What was begun has ended, and nobody has settled it."""
        return self._future is not None and self._future.done()

    @property
    def arriving(self) -> str:
        """Empty if nobody is."""
        return "" if self._arriving is None else self._arriving.deployment

    def involves(self, deployment: str) -> bool:
        return deployment == self.arriving or any(state.deployment == deployment for state in self._leaving)

    def start(self, arriving: DeviceState, leaving: Sequence[DeviceState]) -> None:
        """Nothing of any of them may be running."""
        assert self._future is None, "one at a time"
        self._arriving, self._leaving, self._spent_s = arriving, tuple(leaving), 0.0
        self._future = self._memory.beside(self._run)

    def _run(self) -> None:
        assert self._arriving is not None
        start_s = time.perf_counter()
        try:
            with self._memory.keeping_caches():
                for state in self._leaving:
                    state.park()
                self._arriving.unpark()
        except CapacityError:
            return  # Whoever needs it there makes room, or hears why there is none.
        finally:
            self._spent_s = time.perf_counter() - start_s

    def settle(self) -> Staged | None:
        """Wait until it is over, or take it back if it has not begun. Raises what went wrong; None if nothing was under way."""
        if self._future is None:
            return None
        start_s, deployment = time.perf_counter(), self.arriving
        try:
            if not self._future.cancel():
                self._future.result()
        finally:
            self._future, self._arriving, self._leaving = None, None, ()
        return Staged(deployment, self._spent_s, time.perf_counter() - start_s)
