"""What a policy trains, and how its versions lie in their folders: an adapter on the shared base, or all weights.

- Pristine weights are the base itself: an adapter that adds nothing, or the base's own weights in float32.
- What is read is verified; what does not fit this base is an AdapterError.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from plait.lora.initial import pristine_adapter
from plait.lora.peft_config import parse_peft_config, peft_config
from plait.lora.peft_format import from_peft_tensors, to_peft_tensors
from plait.models.decoder import Decoder
from plait.models.hf_config import to_hf_config
from plait.models.tensor_names import hf_name, tensor_shapes
from plait.models.weights import load_model
from plait.state.checkpoint import read_checkpoint_adapter, read_checkpoint_optimizer
from plait.state.records import MODEL_FILE, OPTIMIZER_FILE
from plait.state.step_record import StepRecord
from plait.state.tensor_file import load_converted
from plait.training.full_trainer import FullTrainer
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


class TrainedWeights(Protocol):
    """Tensors are by the names that the trainer has for them; stored ones by those of the files' format."""

    @property
    def base(self) -> AdapterBase: ...

    @property
    def training(self) -> Training: ...

    def pristine(self) -> Tensors: ...

    def trainer(self, tensors: Tensors) -> Trainer:
        """The tensors are the trainer's from now on."""
        ...

    def stored(self, tensors: Tensors) -> Tensors: ...

    def config(self) -> Mapping[str, Any]:
        """What lies beside the weights."""
        ...

    def read(self, folder: Path, record: StepRecord) -> Tensors:
        """The weights in a record's or checkpoint's folder."""
        ...

    def read_optimizer(self, folder: Path, record: StepRecord) -> Tensors:
        """In memory of their own."""
        ...


@dataclass(frozen=True, slots=True)
class LoraWeights:
    base: AdapterBase
    lora: LoraConfig

    @property
    def training(self) -> Training:
        return "lora"

    def pristine(self) -> Tensors:
        return pristine_adapter(self.base.decoder.config, self.lora)

    def trainer(self, tensors: Tensors) -> AdapterTrainer:
        return AdapterTrainer(self.base.decoder, self.lora, tensors, self.base.passes)

    def stored(self, tensors: Tensors) -> Tensors:
        return to_peft_tensors(tensors)

    def config(self) -> Mapping[str, Any]:
        return peft_config(self.lora, self.base.name)

    def read(self, folder: Path, record: StepRecord) -> Tensors:
        _check_training(self.training, record)
        stored, config = read_checkpoint_adapter(folder, record)
        check_shape(parse_peft_config(config), self.lora)
        return from_peft_tensors(stored, self.base.decoder.config, self.lora)

    def read_optimizer(self, folder: Path, record: StepRecord) -> Tensors:
        return {name: tensor.clone() for name, tensor in read_checkpoint_optimizer(folder, record).items()}


@dataclass(frozen=True, slots=True)
class FullWeights:
    base: AdapterBase

    @property
    def training(self) -> Training:
        return "full"

    def pristine(self) -> Tensors:
        return load_model(Path(self.base.name), torch.float32)[1]

    def trainer(self, tensors: Tensors) -> FullTrainer:
        return FullTrainer(self.base.decoder, tensors, self.base.passes, copy=False)

    def stored(self, tensors: Tensors) -> Tensors:
        return {hf_name(name): tensor for name, tensor in tensors.items()}

    def config(self) -> Mapping[str, Any]:
        return to_hf_config(self.base.decoder.config) | {"dtype": "float32"}

    def read(self, folder: Path, record: StepRecord) -> Tensors:
        _check_training(self.training, record)
        return read_model(folder, record.adapter_digest, self.base.decoder.config, torch.float32)

    def read_optimizer(self, folder: Path, record: StepRecord) -> Tensors:
        return load_converted(folder / OPTIMIZER_FILE, record.optimizer_digest, lambda tensor: tensor.clone())


def read_model(
    folder: Path, digest: str, config: ModelConfig, dtype: torch.dtype, device: torch.device = torch.device("cpu")
) -> Tensors:
    """All weights of a version, verified, by the names of `models.tensor_names`. AdapterError if they are of another model."""
    stored = load_converted(folder / MODEL_FILE, digest, lambda tensor: tensor.to(device, dtype, copy=True))
    shapes = tensor_shapes(config)
    for name in sorted(stored.keys() ^ {hf_name(name) for name in shapes}):
        fault = "holds no" if name not in stored else "holds an unknown"
        raise AdapterError(f"{folder} {fault} tensor {name!r}.", "It is of another model.")
    for name, shape in shapes.items():
        found = tuple(stored[hf_name(name)].shape)
        if found != shape:
            raise AdapterError(f"{folder}: tensor {hf_name(name)!r} has shape {found}, not {shape}.", "It is of another model.")
    return {name: stored[hf_name(name)] for name in shapes}


def _check_training(wanted: Training, record: StepRecord) -> None:
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
    return FullWeights(base) if training == "full" else LoraWeights(base, lora)
