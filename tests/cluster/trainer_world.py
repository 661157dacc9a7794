"""Trainers played by a fake that holds the locks of what it has open, and whoever asks them, as `TrainerLink` does."""

from collections import deque
from typing import Any

from plait.cluster.messages import AdapterClosed, CloseTask, OpenTask, SetTenantWeight, TaskOpened, Update, UpdateDone
from plait.cluster.trainer_messages import owner_of
from plait.cluster.trainer_router import TrainerRouter
from plait.observe.events import StepCommitted
from plait.types.datum import Datum
from plait.types.policy import AdapterRef, PolicyVersion


class World:
    """Trainers with inboxes, the disk that they share, and whoever asks (a task's next step is asked once the last is told)."""

    def __init__(self, num_trainers: int) -> None:
        self.names = [f"train-{n}" for n in range(num_trainers)]
        self.inboxes: dict[str, deque[Any]] = {name: deque() for name in self.names}
        self.open: dict[str, set[str]] = {name: set() for name in self.names}
        self.disk: dict[str, int] = {}
        """Version by task."""
        self.trained: list[tuple[str, int]] = []
        self.waiting: dict[str, int] = {}
        """The step that a task waits for."""
        self.sizes: dict[str, int] = {}
        self.opening: set[str] = set()
        self.told: dict[str, int] = {}
        self.lost: list[str] = []
        self.is_idle: list[bool] = []
        self.messages: list[Any] = []
        self.router = TrainerRouter(self.names, self._send_to, self._on_lost, self._on_reopen, self.is_idle.append)

    # ---- whoever asks, as TrainerLink does

    def ask(self, task: str, size: int) -> None:
        if task in self.waiting:
            return
        if task not in self.told:
            self.told[task] = 0
            self._open(task)
        self.waiting[task] = self.told[task] + 1
        self.sizes[task] = size
        if task not in self.opening:
            self._update(task)

    def _open(self, task: str) -> None:
        self.opening.add(task)
        self.router.send(opening(task))

    def _update(self, task: str) -> None:
        self.router.send(update(task, self.waiting[task], self.sizes[task]))

    def _on_lost(self, owners: Any) -> None:
        self.lost += owners

    def _on_reopen(self, owners: Any) -> None:
        for task in owners:
            self._open(task)

    def _hear(self, message: Any) -> None:
        self.messages.append(message)
        match message:
            case TaskOpened(task=task, ref=ref):
                self.opening.remove(task)
                if ref.policy.version == self.waiting.get(task):
                    self.told[task] = self.waiting.pop(task)
                elif task in self.waiting:
                    self._update(task)
            case UpdateDone(task=task):
                assert self.waiting.pop(task) == message.event.step
                self.told[task] = message.event.step

    # ---- the trainers

    def _send_to(self, trainer: str, message: Any) -> None:
        self.inboxes[trainer].append(message)

    def work(self, trainer: str) -> None:
        """Handle one message, if there is one."""
        if self.inboxes[trainer]:
            reply = self._handle(trainer, self.inboxes[trainer].popleft())
            if reply is not None and (told := self.router.heard(trainer, reply)) is not None:
                self._hear(told)

    def _handle(self, trainer: str, message: Any) -> Any:
        name = owner_of(message) if not isinstance(message, SetTenantWeight) else ""
        match message:
            case OpenTask():
                assert all(name not in held for other, held in self.open.items() if other != trainer), f"{name} is open elsewhere"
                self.open[trainer].add(name)
                return TaskOpened(name, ref(name, self.disk.setdefault(name, 0)), 0)
            case CloseTask():
                self.open[trainer].discard(name)
                return AdapterClosed(name)
            case Update():
                assert name in self.open[trainer], f"{name} is not open at {trainer}"
                assert message.event.step == self.disk[name] + 1
                self.disk[name] += 1
                self.trained.append((name, message.event.step))
                return UpdateDone(name, ref(name, message.event.step), message.event)
        return None

    def kill(self, trainer: str) -> None:
        self.inboxes[trainer].clear()
        self.open[trainer].clear()
        self.router.down(trainer)

    def finish(self) -> None:
        while any(self.inboxes.values()):
            for trainer in self.names:
                self.work(trainer)


def opening(task: str) -> OpenTask:
    return OpenTask("ana", "{}", f"folder/{task}", 1, task)


def update(task: str, step: int, size: int) -> Update:
    event = StepCommitted(
        time_s=0.0, task=task, step=step, adapter_digest="", loss=0.0, grad_norm=0.0, learning_rate=0.0, num_sequences=1,
        num_trained_tokens=size,
    )  # fmt: skip
    return Update(task, (Datum((1,) * size, (1,) * size),), 0.1, 0, event, 0.0)


def ref(name: str, version: int) -> AdapterRef:
    return AdapterRef(PolicyVersion("ana", name, version), "folder", "digest")
