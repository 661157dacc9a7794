"""A policy on the device whose every version is a durable record.

- On the device is the latest record, and gradients that wait; a version that could not be made durable is not there either.
- Only one process writes a folder of records at a time.
"""

from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from plait.cluster.trained_weights import AdapterBase, Tensors, TrainedWeights
from plait.state.durable import remove_folder, remove_temporaries
from plait.state.records import latest_record, list_steps, step_folder, write_record
from plait.state.recovery import check_base
from plait.state.step_record import StepRecord
from plait.state.writer_lock import WriterLock
from plait.training.optimizer import fresh_state
from plait.training.trainer import Trainer
from plait.types.policy import AdapterRef, PolicyVersion

AdapterState = tuple[Tensors, Tensors]
"""A policy's tensors, by the names that its trainer has for them, and its optimizer's."""


class RecordedAdapter:
    """Opens the latest record in `folder`; without one `begin` gives the state that becomes version 0, with `first` as its record.

    Raises StateError if the records are of another base or another process goes on writing them.
    """

    def __init__(self, weights: TrainedWeights, folder: Path, first: StepRecord, begin: Callable[[], AdapterState]) -> None:
        self.weights, self.folder = weights, folder
        self.is_lost = False
        """The device may hold what no record holds: open it again."""
        self._lock = WriterLock(folder)
        try:
            remove_temporaries(folder)
            latest = latest_record(folder)
            self.record = latest.record or self._write(*begin(), first)
            self.damage = latest.damage
            self.trainer = self._on_device()
        except BaseException:
            self._lock.release()
            raise

    @property
    def base(self) -> AdapterBase:
        return self.weights.base

    def _on_device(self) -> Trainer:
        check_base(self.record, self.base.digest)
        tensors, optimizer = self._read()
        trainer = self.weights.trainer(tensors)
        trainer.load_state(tensors, optimizer, copy=False)
        return trainer

    def ref(self, tenant: str) -> AdapterRef:
        policy = PolicyVersion(tenant, self.record.task, self.record.step)
        return AdapterRef(policy, str(step_folder(self.folder, self.record.step)), self.record.adapter_digest)

    def commit(self, record: StepRecord) -> None:
        """Make what is on the device the version that `record` describes, its digests to be filled in."""
        self.record = self._write(self.trainer.weight_tensors(copy=False), self.trainer.state_tensors(copy=False), record)

    def go_back(self) -> None:
        """Bring the latest version back onto the device, bit for bit; waiting gradients go. Sets `is_lost` if it cannot be read."""
        self.is_lost = True
        for step in list_steps(self.folder):
            if step > self.record.step:  # Its rename went through, and what followed did not.
                remove_folder(step_folder(self.folder, step))
        self.trainer.load_state(*self._read(), copy=False)
        self.is_lost = False

    def close(self) -> None:
        self._lock.release()

    def _read(self) -> AdapterState:
        folder = step_folder(self.folder, self.record.step)
        return self.weights.read(folder, self.record), self.weights.read_optimizer(folder, self.record)

    def _write(self, tensors: Tensors, optimizer: Tensors, record: StepRecord) -> StepRecord:
        described = replace(record, training=self.weights.training)
        return write_record(self.folder, record.step, self.weights.stored(tensors), self.weights.config(), optimizer, described)


def fresh_policy(weights: TrainedWeights, tensors: Tensors | None = None) -> AdapterState:
    """The policy's tensors (pristine ones, if none are given) with moments that start anew."""
    tensors = weights.pristine() if tensors is None else tensors
    return tensors, fresh_state(tensors)
