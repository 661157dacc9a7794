"""What systems that Plait is compared with do otherwise, as policies for Plait's own driver. Pure.

- `OneAtATime`: the next task is opened when the one before has ended.
- `Rounds`: no task trains before all have their batches, none rolls out again before all have trained.
- `ExclusiveBuffer`: the engines decode one task's rows at a time.

`PolicedManager` is Plait's task manager with such a policy between it and the driver: commands are held back, never changed.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, cast

from plait.rollout.buffer import RequestBuffer
from plait.rollout.buffer_scheduler import BufferScheduler
from plait.rollout.request import GenerationRequest
from plait.rollout.scheduler import Scheduler
from plait.tasks.commands import Command, OpenTask, RollOut, StopTask, Train, WarmStep
from plait.tasks.manager import TaskManager

EVENTS = ("add", "opened", "batch_ready", "committed", "evaluated", "failed", "cancel", "pause", "resume")
"""The manager's methods that give commands."""


class Policy(Protocol):
    def take(self, event: str, task: str, commands: Sequence[Command]) -> list[Command]:
        """`event` happened to `task`, and the manager gave `commands`: which go to the driver now?"""


class PolicedManager:
    """A `TaskManager` to its driver."""

    def __init__(self, policy: Policy) -> None:
        self._manager, self._policy = TaskManager(), policy

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._manager, name)
        return self._policed(name, method) if name in EVENTS else method

    def _policed(self, name: str, method: Callable[..., list[Command]]) -> Callable[..., list[Command]]:
        def call(first: Any, *rest: Any, **named: Any) -> list[Command]:
            task = first if isinstance(first, str) else first.name
            return self._policy.take(name, task, method(first, *rest, **named))

        return call


def police(policy: Policy) -> TaskManager:
    return cast(TaskManager, PolicedManager(policy))


class NoPolicy:
    """Plait's own."""

    def take(self, event: str, task: str, commands: Sequence[Command]) -> list[Command]:
        return list(commands)


class OneAtATime:
    def __init__(self) -> None:
        self._waiting: deque[Command] = deque()
        self._is_busy = False

    def take(self, event: str, task: str, commands: Sequence[Command]) -> list[Command]:
        passed: list[Command] = []
        for command in commands:
            if isinstance(command, OpenTask):
                self._waiting.append(command)
                continue
            self._is_busy = self._is_busy and not isinstance(command, StopTask)
            passed.append(command)
        if self._waiting and not self._is_busy:
            self._is_busy = True
            passed.append(self._waiting.popleft())
        return passed


class Rounds:
    """A round begins when every task that has not ended is ready to roll out."""

    def __init__(self) -> None:
        self._held: list[Command] = []
        self._opening: set[str] = set()
        """Tasks that are opened or trained before the next round begins."""
        self._collecting: set[str] = set()
        """Tasks of this round without a batch yet."""

    def take(self, event: str, task: str, commands: Sequence[Command]) -> list[Command]:
        if event == "batch_ready":
            self._collecting.discard(task)
        passed: list[Command] = []
        for command in commands:
            self._note(command)
            (self._held if isinstance(command, RollOut | WarmStep | Train) else passed).append(command)
        return passed + self._release()

    def _note(self, command: Command) -> None:
        match command:
            case OpenTask(task):
                self._opening.add(task)
            case StopTask(task):
                self._opening.discard(task)
                self._collecting.discard(task)
                self._held = [held for held in self._held if held.task != task]
            case RollOut(task=task) | WarmStep(task=task):
                self._opening.discard(task)

    def _release(self) -> list[Command]:
        if self._collecting:
            return []
        trains = [command for command in self._held if isinstance(command, Train)]
        if trains:
            self._opening |= {command.task for command in trains}
            self._held = [command for command in self._held if command not in trains]
            return list(trains)
        if self._opening:
            return []
        starts, self._held = self._held, []
        self._collecting = {command.task for command in starts}
        return starts


class ExclusiveBuffer:
    """A `RequestBuffer` to its service: a buffer for each task, of which one at a time gives requests."""

    def __init__(self) -> None:
        self._buffers: dict[str, RequestBuffer] = {}
        """By task; the one whose turn it is comes first."""
        self._tasks: dict[str, str] = {}
        """request_id -> task."""

    def _of(self, request_id: str) -> RequestBuffer:
        return self._buffers[self._tasks[request_id]]

    @property
    def num_running(self) -> int:
        return sum(buffer.num_running for buffer in self._buffers.values())

    @property
    def num_waiting(self) -> int:
        return sum(buffer.num_waiting for buffer in self._buffers.values())

    def __iter__(self) -> Iterator[GenerationRequest]:
        return (request for buffer in self._buffers.values() for request in buffer)

    def add(self, request: GenerationRequest) -> None:
        task = request.policy.task
        self._tasks[request.request_id] = task
        self._buffers.setdefault(task, RequestBuffer()).add(request)

    def take(self) -> GenerationRequest | None:
        current = next((buffer for buffer in self._buffers.values() if buffer.num_running), None)
        if current is not None:
            return current.take()
        for task in list(self._buffers):
            buffer = self._buffers[task] = self._buffers.pop(task)
            if buffer.num_waiting:
                return buffer.take()
        return None

    def running(self, request_id: str) -> GenerationRequest | None:
        return self._of(request_id).running(request_id) if request_id in self._tasks else None

    def requeue(self, request_id: str) -> None:
        self._of(request_id).requeue(request_id)

    def requeue_running(self) -> None:
        for buffer in self._buffers.values():
            buffer.requeue_running()

    def finish(self, request_id: str) -> GenerationRequest:
        request = self._of(request_id).finish(request_id)
        del self._tasks[request_id]
        return request

    def remove(self, request_id: str) -> bool:
        return request_id in self._tasks and self._buffers[self._tasks.pop(request_id)].remove(request_id)


def exclusive_scheduler() -> Scheduler:
    return BufferScheduler(cast(RequestBuffer, ExclusiveBuffer()))
