"""The global queue of finished batches: who may train next. Pure.

- Batches are taken in the order in which they became ready, over all tasks; one that may not train yet is passed by.
- A task has at most one update with a trainer; all tasks together have at most `max_in_flight`.
"""

from collections import deque
from collections.abc import Callable

MAX_UPDATES_IN_FLIGHT = 8
"""Of each trainer. Only at the trainer does a short call pass long ones, so it must not be held back here by a few of them.

The bound is for the trainer's memory: it holds the data of so many batches.
"""


class UpdateQueue:
    def __init__(self, max_in_flight: int = MAX_UPDATES_IN_FLIGHT) -> None:
        self.max_in_flight = max_in_flight
        self._ready: deque[tuple[str, int]] = deque()
        self._in_flight: dict[str, int] = {}

    @property
    def ready(self) -> tuple[tuple[str, int], ...]:
        """(task, step) of the batches that wait, first come first."""
        return tuple(self._ready)

    def in_flight(self, task: str) -> int | None:
        """The step of the task that is with the trainer."""
        return self._in_flight.get(task)

    def add(self, task: str, step: int) -> None:
        self._ready.append((task, step))

    def take(self, may_train: Callable[[str, int], bool]) -> list[tuple[str, int]]:
        """The batches that go to the trainer now."""
        taken: list[tuple[str, int]] = []
        for task, step in self.ready:
            if len(self._in_flight) >= self.max_in_flight:
                break
            if task not in self._in_flight and may_train(task, step):
                self._in_flight[task] = step
                self._ready.remove((task, step))
                taken.append((task, step))
        return taken

    def finish(self, task: str) -> None:
        """The task's update has ended."""
        del self._in_flight[task]

    def drop(self, task: str) -> None:
        """Forget all of a task that has ended."""
        self._ready = deque(item for item in self._ready if item[0] != task)
        self._in_flight.pop(task, None)
