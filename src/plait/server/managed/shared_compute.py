"""The workers of a service's base model as one managed run sees them, and who of the runs hears what comes back.

- At the workers a task is called `RUN/TASK`, so that no two runs meet.
- What a run generates and trains is metered for its tenant, and counts against its tokens per minute.
- An error of one run's driver ends that run, and neither another nor the service.
"""

from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from plait.cluster.messages import Busy, OpenTask, Ready, Starting, UpdateDone
from plait.observe.events import EngineSample
from plait.server.backend import Backend
from plait.server.managed.metered_rollout import MeteredRollout
from plait.server.usage import UsageMeter
from plait.tasks.compute import ComputeListener, TaskMessage, ToRun, ToTrainer
from plait.tasks.identity import RunIdentity
from plait.types.errors import WorkerFailure


class SharedCompute:
    def __init__(
        self, switchboard: "Switchboard", identity: RunIdentity, rollout: MeteredRollout, usage: UsageMeter, base_model: str
    ) -> None:
        self.identity, self.rollout = identity, rollout
        self.listener: ComputeListener | None = None
        self._switchboard, self._usage, self._base_model = switchboard, usage, base_model
        self._device_s = 0.0
        """Trained for and not metered yet."""

    def rollout_of(self, task: str) -> MeteredRollout:
        return self.rollout

    @property
    def worker_names(self) -> tuple[str, ...]:
        """None: what others use them for is nobody's business."""
        return ()

    async def start(self, listener: ComputeListener) -> Ready:
        self.listener = listener
        return self._switchboard.join(self)

    async def close(self) -> None:
        self.listener = None
        self._switchboard.leave(self)
        self._meter(0)

    def train(self, message: ToTrainer) -> None:
        if isinstance(message, OpenTask):
            message = msgspec.structs.replace(message, key=self.identity.key(message.key))
        else:
            message = msgspec.structs.replace(message, task=self.identity.key(message.task))
        self._switchboard.backend.send(message)

    def take(self, worker: str, message: TaskMessage) -> None:
        """What the worker says of a task of this run."""
        match message:
            case Busy():
                self._device_s += message.end_s - message.start_s
            case UpdateDone():
                self._meter(message.event.num_trained_tokens)
        own = msgspec.structs.replace(message, task=self.identity.task(message.task))
        self.tell(lambda listener: listener.on_message(worker, own))

    def tell(self, call: Callable[[ComputeListener], None]) -> None:
        if self.listener is None:
            return
        try:
            call(self.listener)
        except Exception as error:
            self.listener.on_failed(error)

    def _meter(self, num_tokens: int) -> None:
        device_s, self._device_s = self._device_s, 0.0
        if num_tokens or device_s:
            self._usage.trained(self.identity.tenant, self._base_model, num_tokens, device_s)


class Switchboard:
    """Between the backend and the runs. `on_failed`: there will be no more workers."""

    def __init__(self, backend: Backend, on_failed: Callable[[], None]) -> None:
        self.backend, self._on_failed = backend, on_failed
        self.ready: Ready | None = None
        """What the workers said when they were started."""
        self._runs: dict[str, SharedCompute] = {}
        backend.runs = self
        backend.busy_listeners.append(self._on_busy)

    def join(self, run: SharedCompute) -> Ready:
        assert self.ready is not None, "the workers have not been started"
        self._runs[run.identity.run_id] = run
        return self.ready

    def leave(self, run: SharedCompute) -> None:
        self._runs.pop(run.identity.run_id, None)

    # ---- ComputeListener of all runs

    def on_message(self, worker: str, message: ToRun) -> None:
        if isinstance(message, Starting):  # What everybody's workers do is nobody's business.
            return
        run = self._runs.get(message.task.partition("/")[0])
        if run is not None:
            run.take(worker, message)

    def on_engine(self, sample: EngineSample) -> None:
        """What engines do for everybody is in no run's log."""

    def _on_busy(self, worker: str, busy: Busy) -> None:
        self.on_message(worker, busy)

    def on_worker_lost(self, worker: str, failure: WorkerFailure) -> None:
        self._tell_all(lambda listener: listener.on_worker_lost(worker, failure))

    def on_reopen(self, tasks: Sequence[str]) -> None:
        """Models of clients may be among them."""
        for run in list(self._runs.values()):
            own = [run.identity.task(task) for task in tasks if task.partition("/")[0] == run.identity.run_id]
            if own:
                run.tell(partial(_reopen, own))

    def on_failed(self, error: Exception) -> None:
        self._on_failed()
        self._tell_all(lambda listener: listener.on_failed(error))

    def _tell_all(self, call: Callable[[ComputeListener], None]) -> None:
        for run in list(self._runs.values()):
            run.tell(call)


def _reopen(tasks: Sequence[str], listener: ComputeListener) -> None:
    listener.on_reopen(tasks)
