"""Updates on their way to the trainer and back, also when the training worker is lost in between.

- An update is sent once the manager says so, and stays here until its step is known to be durable.
- What a trainer had is opened again from the latest record, at another or at its replacement: an update whose step is there was
  durable before the loss, any other is sent again.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from plait.cluster.messages import CloseTask, OpenTask, TaskOpened, UpdateDone
from plait.config.run import RunSettings
from plait.config.task import TaskSettings
from plait.observe.events import AnyEvent, Note, PhaseSpan, StepCommitted
from plait.state.records import RECORD_FILE, decode_record, step_folder
from plait.state.rundir import RunDirectory
from plait.tasks.compute import Compute
from plait.tasks.identity import RunIdentity
from plait.tasks.ready_batch import ReadyBatch
from plait.types.policy import AdapterRef

Emit = Callable[[AnyEvent], None]


@dataclass(slots=True)
class _Trained:
    settings: TaskSettings
    refs: dict[int, AdapterRef] = field(default_factory=dict)
    updating: ReadyBatch | None = None
    is_opening: bool = False
    """An update waits for the answer, which tells whether it took place before the worker was lost."""


class TrainerLink:
    """`on_opened(task, version)` and `on_committed(event)` tell the driver; the event has been emitted by then."""

    def __init__(
        self,
        settings: RunSettings,
        directory: RunDirectory,
        compute: Compute,
        identity: RunIdentity,
        emit: Emit,
        on_opened: Callable[[str, int], None],
        on_committed: Callable[[StepCommitted], None],
        logged: Mapping[str, int],
    ) -> None:
        """`logged`: the last step of each task that the event log has."""
        self._logged = logged
        self._directory, self._compute, self._identity, self._emit = directory, compute, identity, emit
        self._keep_every_steps = settings.state.keep_every_steps
        self._on_opened, self._on_committed = on_opened, on_committed
        self._tasks = {task.name: _Trained(task) for task in settings.tasks}

    def ref(self, task: str, version: int) -> AdapterRef:
        """Where a version lies; one of an earlier run is looked up in its record."""
        refs, folder = self._tasks[task].refs, self._directory.steps_folder(task)
        if version not in refs:
            path = step_folder(folder, version)
            digest = decode_record(path / RECORD_FILE).adapter_digest  # Whoever loads the weights verifies them.
            refs[version] = AdapterRef(self._identity.policy(task, version), str(path), digest)
        return refs[version]

    def open(self, task: str) -> None:
        self._tasks[task].is_opening = True
        settings, folder = self._tasks[task].settings, str(self._directory.steps_folder(task))
        self._compute.train(OpenTask(self._identity.tenant, settings.model_dump_json(), folder, self._keep_every_steps, task))

    def close(self, task: str) -> None:
        self._tasks[task].updating, self._tasks[task].is_opening = None, False
        self._compute.train(CloseTask(task))

    def close_all(self) -> None:
        """The run is over: nothing of it stays with the trainer."""
        for task in self._tasks:
            self.close(task)

    def send(self, batch: ReadyBatch, protected_steps: tuple[int, ...]) -> None:
        """Train a step. `protected_steps`: records that must not be thinned."""
        batch.protected_steps = protected_steps
        self._tasks[batch.task].updating = batch
        if not self._tasks[batch.task].is_opening:
            self._compute.train(batch.update())

    def opened(self, message: TaskOpened) -> None:
        task, version = self._tasks[message.task], message.ref.policy.version
        task.refs[version], task.is_opening = self._own(message.task, message.ref), False
        for damage in message.damage:
            self._emit(Note(time_s=time.time(), level="warning", message=damage, task=message.task))
        if task.updating is None:
            self._tell_unlogged(message.event)
            self._on_opened(message.task, version)
        elif message.event is not None and version == task.updating.step:
            self.committed(UpdateDone(message.task, message.ref, message.event))
        else:
            self._compute.train(task.updating.update())

    def _own(self, task: str, ref: AdapterRef) -> AdapterRef:
        """The worker names the policy after the record, which knows the task's name alone."""
        return AdapterRef(self._identity.policy(task, ref.policy.version), ref.path, ref.digest)

    def _tell_unlogged(self, event: StepCommitted | None) -> None:
        """A step that became durable after its controller was killed is told now."""
        if event is not None and self._logged.get(event.task, 0) < event.step:
            self._emit(event)

    def committed(self, message: UpdateDone) -> None:
        task, step = self._tasks[message.task], message.event.step
        batch, task.updating = task.updating, None
        if batch is None:
            return  # the task has ended meanwhile; its record stands
        task.refs[step] = self._own(message.task, message.ref)
        self._tell(message.event, batch)
        self._on_committed(message.event)

    def _tell(self, event: StepCommitted, batch: ReadyBatch) -> None:
        """The step and its phases; it queued until the worker began its first slice."""
        start_s = event.time_s - (event.training_s or 0.0)
        phase = "warm_start" if event.phase == "warm_start" else "training"
        self._emit(PhaseSpan(time_s=start_s, task=event.task, phase="queued", step=event.step, start_s=batch.ready_s))
        self._emit(PhaseSpan(time_s=event.time_s, task=event.task, phase=phase, step=event.step, start_s=start_s))
        self._emit(event)
