"""What a policy trains, and how its versions lie in their folders: an adapter on the shared base, or all weights.

- Pristine weights are the base itself: an adapter that adds nothing, or the base's own weights in float32.
- What is read is verified; what does not fit this base is an AdapterError.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol

import torch
from msgspec.structs import replace
from torch import Tensor

from plait.lora.initial import pristine_adapter
from plait.lora.peft_config import parse_peft_config, peft_config
from plait.lora.peft_format import from_peft_tensors, to_peft_tensors
from plait.models.decoder import Decoder
from plait.models.hf_config import to_hf_config
from plait.models.tensor_names import hf_name, tensor_shapes
from plait.models.weights import load_model
from plait.state.checkpoint import read_checkpoint_adapter, read_checkpoint_optimizer
from plait.state.records import MODEL_FILE, OPTIMIZER_FILE, write_record
from plait.state.step_record import StepRecord
from plait.state.tensor_file import load_converted
from plait.training.full_trainer import FullTrainer
from plait.training.optimizer import fresh_state
from plait.training.policy_trainer import PolicyTrainer
from plait.training.trainer import AdapterTrainer, Trainer
from plait.training.training_pass import PassSettings
from plait.types.errors import AdapterError
from plait.types.lora import LoraConfig
from plait.types.model import ModelConfig
from plait.types.policy import Training

Tensors = dict[str, Tensor]


@dataclass(frozen=True, slots=True)
class AdapterBase:
    """What all policies of a worker share."""

    decoder: Decoder
    digest: str
    name: str
    """The base model's name or path, for PEFT's configuration; the path, where all weights are trained."""
    passes: PassSettings
    full_weights: "Callable[[AdapterBase], TrainedWeights] | None" = None
    """Makes what trains all weights; None: `FullWeights`, in this process."""


class HeldState(NamedTuple):
    """A policy in this process."""

    weights: Tensors
    """By the names that the trainer has for them."""
    optimizer: Tensors


PolicyState = Any
"""What a trainer starts from. What is in it, only the kind of weights knows that made it."""


class TrainedWeights(Protocol):
    @property
    def base(self) -> AdapterBase: ...

    @property
    def training(self) -> Training: ...

    def pristine(self) -> PolicyState:
        """With moments that start anew."""
        ...

    def read(self, folder: Path, record: StepRecord, with_optimizer: bool = True, is_verified: bool = False) -> PolicyState:
        """What a record's or checkpoint's folder holds; without the optimizer, moments start anew.

        `is_verified`: the files have been compared with their digests just now.
        """
        ...

    def trainer(self, state: PolicyState) -> PolicyTrainer:
        """The state is the trainer's from now on."""
        ...

    def load(self, trainer: Any, state: PolicyState) -> None:
        """Go back to the state, exactly; it is the trainer's from now on. Waiting gradients are forgotten."""
        ...

    def write(self, directory: Path, trainer: Any, record: StepRecord) -> StepRecord:
        """Make a trainer's state the step that `record` describes, its digests to be filled in."""
        ...


class _HeldWeights(ABC):
    """Of a kind that this process holds whole. Stored tensors are by the names of the files' format."""

    training: ClassVar[Training]

    def __init__(self, base: AdapterBase) -> None:
        self.base = base

    @abstractmethod
    def pristine(self) -> HeldState: ...

    @abstractmethod
    def new_trainer(self, tensors: Tensors) -> Trainer: ...

    @abstractmethod
    def stored(self, tensors: Tensors) -> Tensors: ...

    @abstractmethod
    def config(self) -> Mapping[str, Any]:
        """What lies beside the weights."""

    @abstractmethod
    def read_weights(self, folder: Path, record: StepRecord) -> Tensors: ...

    @abstractmethod
    def read_optimizer(self, folder: Path, record: StepRecord) -> Tensors:
        """In memory of their own."""

    def read(self, folder: Path, record: StepRecord, with_optimizer: bool = True, is_verified: bool = False) -> HeldState:
        check_training(self.training, record)
        tensors = self.read_weights(folder, record)
        return HeldState(tensors, self.read_optimizer(folder, record) if with_optimizer else fresh_state(tensors))

    def trainer(self, state: HeldState) -> Trainer:
        trainer = self.new_trainer(state.weights)
        self.load(trainer, state)
        return trainer

    def load(self, trainer: Trainer, state: HeldState) -> None:
        trainer.load_state(state.weights, state.optimizer, copy=False)

    def write(self, directory: Path, trainer: Trainer, record: StepRecord) -> StepRecord:
        weights, optimizer = self.stored(trainer.weight_tensors(copy=False)), trainer.state_tensors(copy=False)
        return write_record(directory, record.step, weights, self.config(), optimizer, replace(record, training=self.training))


class LoraWeights(_HeldWeights):
    training = "lora"

    def __init__(self, base: AdapterBase, lora: LoraConfig) -> None:
        super().__init__(base)
        self.lora = lora

    def pristine(self) -> HeldState:
        tensors = pristine_adapter(self.base.decoder.config, self.lora)
        return HeldState(tensors, fresh_state(tensors))

    def new_trainer(self, tensors: Tensors) -> AdapterTrainer:
        return AdapterTrainer(self.base.decoder, self.lora, tensors, self.base.passes)

    def stored(self, tensors: Tensors) -> Tensors:
        return to_peft_tensors(tensors)

    def config(self) -> Mapping[str, Any]:
        return peft_config(self.lora, self.base.name)

    def read_weights(self, folder: Path, record: StepRecord) -> Tensors:
        stored, config = read_checkpoint_adapter(folder, record)
        check_shape(parse_peft_config(config), self.lora)
        return from_peft_tensors(stored, self.base.decoder.config, self.lora)

    def read_optimizer(self, folder: Path, record: StepRecord) -> Tensors:
        return {name: tensor.clone() for name, tensor in read_checkpoint_optimizer(folder, record).items()}


class FullWeights(_HeldWeights):
    training = "full"

    def pristine(self) -> HeldState:
        tensors = load_model(Path(self.base.name), torch.float32)[1]
        return HeldState(tensors, fresh_state(tensors))

    def new_trainer(self, tensors: Tensors) -> FullTrainer:
        return FullTrainer(self.base.decoder, tensors, self.base.passes, copy=False)

    def stored(self, tensors: Tensors) -> Tensors:
        return {hf_name(name): tensor for name, tensor in tensors.items()}

    def config(self) -> Mapping[str, Any]:
        return model_config(self.base)

    def read_weights(self, folder: Path, record: StepRecord) -> Tensors:
        return read_model(folder, record.adapter_digest, self.base.decoder.config, torch.float32)

    def read_optimizer(self, folder: Path, record: StepRecord) -> Tensors:
        return load_converted(folder / OPTIMIZER_FILE, record.optimizer_digest, lambda tensor: tensor.clone())


def model_config(base: AdapterBase) -> Mapping[str, Any]:
    """What lies beside all weights of a version."""
    return to_hf_config(base.decoder.config) | {"dtype": "float32"}


def read_model(
    folder: Path, digest: str, config: ModelConfig, dtype: torch.dtype, device: torch.device = torch.device("cpu")
) -> Tensors:
    """All weights of a version, verified, by the names of `models.tensor_names`. AdapterError if they are of another model."""
    stored = load_converted(folder / MODEL_FILE, digest, lambda tensor: tensor.to(device, dtype, copy=True))
    check_model_tensors(folder, {name: tuple(tensor.shape) for name, tensor in stored.items()}, config)
    return {name: stored[hf_name(name)] for name in tensor_shapes(config)}


def check_model_tensors(folder: Path, found: Mapping[str, tuple[int, ...]], config: ModelConfig) -> None:
    """Raises AdapterError if the stored tensors, given by their shapes, are of another model."""
    shapes = {hf_name(name): shape for name, shape in tensor_shapes(config).items()}
    for name in sorted(found.keys() ^ shapes.keys()):
        fault = "holds no" if name not in found else "holds an unknown"
        raise AdapterError(f"{folder} {fault} tensor {name!r}.", "It is of another model.")
    for name, shape in shapes.items():
        if found[name] != shape:
            raise AdapterError(f"{folder}: tensor {name!r} has shape {found[name]}, not {shape}.", "It is of another model.")


def check_training(wanted: Training, record: StepRecord) -> None:
    kinds = {"lora": "an adapter", "full": "all weights"}
    if record.training != wanted:
        raise AdapterError(
            f"the version holds {kinds[record.training]}; this model trains {kinds[wanted]}.", "Load it into a model of its kind."
        )


def check_shape(saved: LoraConfig, wanted: LoraConfig) -> None:
    """Raises AdapterError naming what differs."""
    for field in ("rank", "alpha", "target_modules"):
        found, expected = getattr(saved, field), getattr(wanted, field)
        if field == "target_modules":
            found, expected = tuple(sorted(found)), tuple(sorted(expected))
        if found != expected:
            raise AdapterError(f"the checkpoint has {field} {found}; this model has {expected}.", "Make a model of its shape.")


def trained_weights(training: Training, base: AdapterBase, lora: LoraConfig) -> TrainedWeights:
    """`lora` has no effect where all weights are trained."""
    return (base.full_weights or FullWeights)(base) if training == "full" else LoraWeights(base, lora)
