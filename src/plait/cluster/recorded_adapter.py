"""A policy on the device whose every version is a durable record.

- On the device is the latest record, and gradients that wait; a version that could not be made durable is not there either.
- Only one process writes a folder of records at a time.
"""

from collections.abc import Callable
from pathlib import Path

from plait.cluster.trained_weights import AdapterBase, PolicyState, TrainedWeights
from plait.state.durable import remove_folder, remove_temporaries
from plait.state.records import latest_record, list_steps, step_folder
from plait.state.recovery import check_base
from plait.state.step_record import StepRecord
from plait.state.writer_lock import WriterLock
from plait.training.policy_trainer import PolicyTrainer
from plait.types.policy import AdapterRef, PolicyVersion


class RecordedAdapter:
    """Opens the latest record in `folder`; without one `begin` gives the state that becomes version 0, with `first` as its record.

    Raises StateError if the records are of another base or another process goes on writing them.
    """

    def __init__(self, weights: TrainedWeights, folder: Path, first: StepRecord, begin: Callable[[], PolicyState]) -> None:
        self.weights, self.folder = weights, folder
        self.is_lost = False
        """The device may hold what no record holds: open it again."""
        self._lock = WriterLock(folder)
        self.trainer: PolicyTrainer
        try:
            remove_temporaries(folder)
            latest = latest_record(folder)
            self.damage = latest.damage
            if latest.record is not None:
                self.record = latest.record
                check_base(self.record, self.base.digest)
                self.trainer = weights.trainer(self._read())
            else:
                self._begin(begin(), first)
        except BaseException:
            self._lock.release()
            raise

    @property
    def base(self) -> AdapterBase:
        return self.weights.base

    def _begin(self, state: PolicyState, first: StepRecord) -> None:
        self.trainer = self.weights.trainer(state)
        try:
            self.commit(first)
        except BaseException:
            self.trainer.close()
            raise

    def ref(self, tenant: str) -> AdapterRef:
        policy = PolicyVersion(tenant, self.record.task, self.record.step)
        return AdapterRef(policy, str(step_folder(self.folder, self.record.step)), self.record.adapter_digest)

    def commit(self, record: StepRecord) -> None:
        """Make what is on the device the version that `record` describes, its digests to be filled in."""
        self.record = self.weights.write(self.folder, self.trainer, record)

    def go_back(self) -> None:
        """Bring the latest version back onto the device, bit for bit; waiting gradients go. Sets `is_lost` if it cannot be read."""
        self.is_lost = True
        for step in list_steps(self.folder):
            if step > self.record.step:  # Its rename went through, and what followed did not.
                remove_folder(step_folder(self.folder, step))
        self.weights.load(self.trainer, self._read())
        self.is_lost = False

    def close(self) -> None:
        self.trainer.close()
        self._lock.release()

    def _read(self) -> PolicyState:
        """Its files were verified as they were found, or written by this process."""
        return self.weights.read(step_folder(self.folder, self.record.step), self.record, is_verified=True)
