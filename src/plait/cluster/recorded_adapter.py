"""An adapter on the device whose every version is a durable record.

- On the device is the latest record, and gradients that wait; a version that could not be made durable is not there either.
- Only one process writes a folder of records at a time.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from plait.lora.initial import pristine_adapter
from plait.lora.peft_config import peft_config
from plait.lora.peft_format import from_peft_tensors, to_peft_tensors
from plait.models.decoder import Decoder
from plait.state.durable import remove_folder, remove_temporaries
from plait.state.records import LatestRecord, latest_record, list_steps, read_adapter, read_optimizer, step_folder, write_record
from plait.state.recovery import check_base
from plait.state.step_record import StepRecord
from plait.state.writer_lock import WriterLock
from plait.training.trainer import AdapterTrainer
from plait.training.training_pass import PassSettings
from plait.types.lora import LoraConfig
from plait.types.policy import AdapterRef, PolicyVersion

Tensors = dict[str, Tensor]
AdapterState = tuple[Tensors, Tensors]
"""An adapter's tensors, by the names of `lora.mix`, and its optimizer's."""


@dataclass(frozen=True, slots=True)
class AdapterBase:
    """What all adapters of a worker share."""

    decoder: Decoder
    digest: str
    name: str
    """The base model's name or path, for PEFT's configuration."""
    passes: PassSettings

    def trainer(self, lora: LoraConfig, tensors: Tensors) -> AdapterTrainer:
        return AdapterTrainer(self.decoder, lora, tensors, self.passes)

    def fresh_state(self, lora: LoraConfig, tensors: Tensors | None = None) -> AdapterState:
        """The adapter's tensors (pristine ones, if none are given) with moments that start anew."""
        tensors = pristine_adapter(self.decoder.config, lora) if tensors is None else tensors
        return tensors, self.trainer(lora, tensors).state_tensors()

    def from_peft(self, stored: Tensors, lora: LoraConfig) -> Tensors:
        """Raises AdapterError if the tensors are not those of `lora` on this base."""
        return from_peft_tensors(stored, self.decoder.config, lora)


class RecordedAdapter:
    """Opens the latest record in `folder`; without one `begin` gives the state that becomes version 0, with `first` as its record.

    Raises StateError if the records are of another base or another process goes on writing them.
    """

    def __init__(
        self, base: AdapterBase, folder: Path, lora: LoraConfig, first: StepRecord, begin: Callable[[], AdapterState]
    ) -> None:
        self.base, self.folder, self.lora = base, folder, lora
        self.is_lost = False
        """The device may hold what no record holds: open it again."""
        self._lock = WriterLock(folder)
        try:
            remove_temporaries(folder)
            latest = latest_record(folder)
            self.record = latest.record or self._write(*begin(), first)
            self.damage = latest.damage
            self.trainer = self._on_device(latest)
        except BaseException:
            self._lock.release()
            raise

    def _on_device(self, latest: LatestRecord) -> AdapterTrainer:
        check_base(self.record, self.base.digest)
        tensors, optimizer = self._read()
        trainer = self.base.trainer(self.lora, tensors)
        trainer.load_state(tensors, optimizer)
        return trainer

    def ref(self, tenant: str) -> AdapterRef:
        policy = PolicyVersion(tenant, self.record.task, self.record.step)
        return AdapterRef(policy, str(step_folder(self.folder, self.record.step)), self.record.adapter_digest)

    def commit(self, record: StepRecord) -> None:
        """Make what is on the device the version that `record` describes, its digests to be filled in."""
        self.record = self._write(self.trainer.adapter_tensors(), self.trainer.state_tensors(), record)

    def go_back(self) -> None:
        """Bring the latest version back onto the device, bit for bit; waiting gradients go. Sets `is_lost` if it cannot be read."""
        self.is_lost = True
        for step in list_steps(self.folder):
            if step > self.record.step:  # Its rename went through, and what followed did not.
                remove_folder(step_folder(self.folder, step))
        self.trainer.load_state(*self._read())
        self.is_lost = False

    def close(self) -> None:
        self._lock.release()

    def _read(self) -> AdapterState:
        stored, _ = read_adapter(self.folder, self.record)
        return self.base.from_peft(stored, self.lora), read_optimizer(self.folder, self.record)

    def _write(self, tensors: Tensors, optimizer: Tensors, record: StepRecord) -> StepRecord:
        config = peft_config(self.lora, self.base.name)
        return write_record(self.folder, record.step, to_peft_tensors(tensors), config, optimizer, record)
