"""Models that clients drive call by call: the contract is in `model_messages`.

- A model's calls run in the order in which they came, one at a time; the first of each model takes turns with everybody's jobs.
- A model whose device state is lost gives up its calls and closes; it is intact in its folder.
"""

import time
import traceback
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from plait.cluster.checkpoints import load_state
from plait.cluster.job_queue import JobQueue, Progress
from plait.cluster.messages import AdapterClosed, FromWorker
from plait.cluster.model_calls import Call, RunningCall, model_record, start_call
from plait.cluster.model_messages import (
    OPENING,
    CallDone,
    CallFailed,
    CloseModel,
    DiscardGradients,
    ModelMessage,
    ModelOpened,
    OpenModel,
)
from plait.cluster.recorded_adapter import RecordedAdapter
from plait.cluster.trained_weights import AdapterBase, PolicyState, TrainedWeights, trained_weights
from plait.types.errors import PlaitError, StateError

TRACEBACK_LINES = 12
"""As much of a traceback as tells where an error came from."""


@dataclass(slots=True)
class _OpenModel:
    model_id: str
    tenant: str
    adapter: RecordedAdapter
    calls: deque[Call | DiscardGradients] = field(default_factory=deque)
    """Those that wait."""
    job: str = ""
    """Name in the queue of the call that runs."""


@dataclass(slots=True)
class _CallJob:
    """The call of a model whose turn it is among its own."""

    role: "ModelRole"
    model: _OpenModel
    call: Call
    running: RunningCall
    device_s: float = 0.0
    longest_wait_slices: int = 0

    @property
    def owner(self) -> str:
        return self.model.model_id

    @property
    def tenant(self) -> str:
        return self.model.tenant

    @property
    def num_slices_left(self) -> int:
        return self.running.num_slices_left

    def run(self, num_waited: int) -> Progress:
        self.longest_wait_slices = max(self.longest_wait_slices, num_waited)
        start_s = time.perf_counter()
        try:
            done = self.running.run_slice()
        except Exception as error:
            return Progress(True, self.role.ended(self.model, call_failed(self.owner, self.call.seq_id, error)))
        self.device_s += time.perf_counter() - start_s
        if done is None:
            return Progress()
        return Progress(True, self.role.ended(self.model, self._complete(done)), done.num_tokens)

    def _complete(self, done: CallDone) -> CallDone:
        return msgspec.structs.replace(done, device_s=self.device_s, longest_wait_slices=self.longest_wait_slices)


class ModelRole:
    def __init__(self, base: AdapterBase, queue: JobQueue) -> None:
        self.base, self.queue = base, queue
        self.models: dict[str, _OpenModel] = {}
        self._num_jobs = 0

    def handle(self, message: ModelMessage) -> list[FromWorker]:
        match message:
            case OpenModel():
                return [self._open(message)]
            case CloseModel(model_id):
                self._close(model_id)
                return [AdapterClosed(model_id)]
            case _:
                return self._enqueue(message)

    def ended(self, model: _OpenModel, reply: CallDone | CallFailed) -> list[FromWorker]:
        """A model's call is over: its result, and what follows from the next ones."""
        model.job = ""
        if model.adapter.is_lost:
            self.models.pop(model.model_id).adapter.close()
            lost = StateError(f"model {model.model_id!r} has left the device.", "Open it again.")
            rest = [call_failed(model.model_id, c.seq_id, lost) for c in model.calls if not isinstance(c, DiscardGradients)]
            return [reply, *rest]
        return [reply, *self._start_next(model)]

    def _open(self, message: OpenModel) -> ModelOpened | CallFailed:
        self._close(message.model_id)
        weights = trained_weights(message.training, self.base, message.lora)
        first = model_record(message.model_id, 0, 0, message.lora.seed, self.base.digest)
        try:
            adapter = RecordedAdapter(weights, Path(message.folder), first, begin=lambda: _begin(message, weights))
        except Exception as error:
            return call_failed(message.model_id, OPENING, error)
        self.models[message.model_id] = _OpenModel(message.model_id, message.tenant, adapter)
        return ModelOpened(message.model_id, adapter.ref(message.tenant), adapter.record.data_cursor, adapter.damage)

    def _close(self, model_id: str) -> None:
        model = self.models.pop(model_id, None)
        if model is not None:
            self.queue.remove(model.job)
            model.adapter.close()

    def _enqueue(self, call: Call | DiscardGradients) -> list[FromWorker]:
        model = self.models.get(call.model_id)
        if model is not None:
            model.calls.append(call)
            return self._start_next(model)
        if isinstance(call, DiscardGradients):
            return []
        return [call_failed(call.model_id, call.seq_id, StateError(f"model {call.model_id!r} is not open.", "Open it first."))]

    def _start_next(self, model: _OpenModel) -> list[FromWorker]:
        """Put the first call that can be started into the queue, unless one runs; those before it have failed."""
        failures: list[FromWorker] = []
        while model.calls and not model.job:
            call = model.calls.popleft()
            if isinstance(call, DiscardGradients):
                model.adapter.trainer.discard_gradients()
                continue
            try:
                running = start_call(call, model.adapter, model.tenant)
            except Exception as error:
                failures.append(call_failed(model.model_id, call.seq_id, error))
                continue
            self._num_jobs += 1
            model.job = f"{model.model_id}#{self._num_jobs}"
            self.queue.add(model.job, _CallJob(self, model, call, running))
        return failures


def _begin(message: OpenModel, weights: TrainedWeights) -> PolicyState:
    if not message.source_folder:
        return weights.pristine()
    return load_state(Path(message.source_folder), weights, message.with_optimizer)


def call_failed(model_id: str, seq_id: int, error: Exception) -> CallFailed:
    """A PlaitError is the caller's fault, unless it is of the state that the service keeps."""
    if isinstance(error, PlaitError):
        return CallFailed(model_id, seq_id, str(error), is_user_error=not isinstance(error, StateError))
    lines = "".join(traceback.format_exception(error)).strip().splitlines()
    return CallFailed(model_id, seq_id, "\n".join(lines[-TRACEBACK_LINES:]), is_user_error=False)
