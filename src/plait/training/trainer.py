"""Training of one policy: here of an adapter on the shared frozen base, in `full_trainer` of all weights.

- The float32 parameters, their accumulated gradients and the optimizer belong to this policy alone.
- Gradients add up over any number of passes until the step; a pass counts when it is complete.
- A step is the one thing that changes weights; passes only read them.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from plait.config.task import LossSettings, OptimizerSettings
from plait.lora.mix import FusedAdapter
from plait.models.decoder import Decoder
from plait.training.memory_order import Order, laid_as, laid_flat, memory_order
from plait.training.optimizer import AdapterOptimizer, Norm
from plait.training.training_pass import PassResult, PassSettings, TrainingPass
from plait.types.datum import Datum
from plait.types.errors import AdapterError, PlaitError
from plait.types.lora import LoraConfig


class Trainer(ABC):
    """Trains `parameters`, float32 leaves that are its own."""

    def __init__(self, parameters: Mapping[str, Tensor], norm: Norm | None = None) -> None:
        """`norm` as in `AdapterOptimizer`."""
        self._parameters = parameters
        self._optimizer = AdapterOptimizer(parameters, norm)
        self._gradients: dict[str, Tensor] = {}
        self._orders: dict[str, Order] = {}
        """How the tensors lay in memory that were given up."""

    @abstractmethod
    def start(self, datums: Sequence[Datum], loss: LossSettings | None, every_position: bool = False) -> TrainingPass:
        """A pass to be run slice by slice; forward only if `loss` is None."""

    def forward_backward(self, datums: Sequence[Datum], loss: LossSettings, every_position: bool = False) -> PassResult:
        """Add the gradients of the datums' losses to those that wait for the step."""
        return self.start(datums, loss, every_position).result()

    def forward(self, datums: Sequence[Datum]) -> list[np.ndarray]:
        """Log-probability of each target at the datum's temperature; changes nothing."""
        return self.start(datums, None, every_position=True).result().logprobs

    @property
    def has_gradients(self) -> bool:
        """Whether anything waits for a step."""
        return bool(self._gradients)

    def optim_step(self, settings: OptimizerSettings, learning_rate: float | None = None) -> dict[str, float]:
        """Take one AdamW step with what has been accumulated, which is used up, even if the step fails.

        Gives `grad_norm` (before clipping) and `learning_rate`. Raises PlaitError if nothing was accumulated: a step
        without any gradient is no step of the optimizer, whose momentum would still move the weights.
        """
        if not self._gradients:
            raise PlaitError("no gradients wait for this step.", "Call forward_backward first, or leave the step out.")
        gradients, self._gradients = self._gradients, {}
        rate = settings.learning_rate if learning_rate is None else learning_rate
        return {"grad_norm": self._optimizer.step(gradients, settings, rate), "learning_rate": rate}

    def skip_step(self) -> dict[str, float]:
        """The step of a batch without any gradient: weights and moments stay as they are, bit for bit.

        The policy version that follows it is a new one with the same weights. Raises PlaitError if gradients wait.
        """
        if self._gradients:
            raise PlaitError("gradients wait for a step, so it cannot be skipped.", "Call optim_step or discard_gradients.")
        return {"grad_norm": 0.0}

    def discard_gradients(self) -> None:
        """Forget what has been accumulated since the last step."""
        self._gradients = {}

    def weight_tensors(self, copy: bool = True) -> dict[str, Tensor]:
        """The parameters, float32 on the CPU; without a copy they hold until the next step or load."""
        return {name: parameter.detach().to("cpu", copy=copy) for name, parameter in self._parameters.items()}

    def state_tensors(self, copy: bool = True) -> dict[str, Tensor]:
        """The optimizer's state, likewise; with `weight_tensors` all that the next steps depend on."""
        return self._optimizer.state_tensors(copy)

    def load_state(self, weights: Mapping[str, Tensor], state_tensors: Mapping[str, Tensor], copy: bool = True) -> None:
        """Go back to saved tensors, exactly. Waiting gradients are forgotten.

        Without a copy the state's tensors are this trainer's from now on. Raises AdapterError or StateError, and changes
        nothing, if they are not of this trainer's shapes.
        """
        _check_same_names(self._parameters, weights)
        self._optimizer.load_state_tensors(state_tensors, copy)
        with torch.no_grad():
            for name, parameter in self._parameters.items():
                parameter.copy_(weights[name])
        self.discard_gradients()

    def close(self) -> None:  # noqa: B027
        """They go with the trainer itself."""

    # ---- on the device and off it

    @property
    def reserved_bytes(self) -> int:
        """What it may come to hold on the device: parameters, two moments, gradients."""
        return self.parked_bytes

    @property
    def parked_bytes(self) -> int:
        """Most that `give_up` hands over."""
        return 4 * sum(parameter.nbytes for parameter in self._parameters.values())

    def give_up(self) -> dict[str, Tensor]:
        """Hand over all tensors, to be given back by `take_back`; no pass may be under way. Only shapes are left."""
        parameters = {f"parameters/{name}": p.detach() for name, p in self._parameters.items()}
        moments = {f"moments/{name}": tensor for name, tensor in self._optimizer.give_up().items()}
        gradients = {f"gradients/{name}": tensor for name, tensor in self._gradients.items()}
        given = parameters | moments | gradients
        self._orders = {name: memory_order(tensor) for name, tensor in given.items()}
        self._parameters = {name: p.detach().to("meta").requires_grad_() for name, p in self._parameters.items()}
        self._gradients = {}
        return {name: laid_flat(tensor) for name, tensor in given.items()}

    def take_back(self, tensors: Mapping[str, Tensor]) -> None:
        """The tensors are this trainer's alone from now on, and changed in place."""
        parts: dict[str, dict[str, Tensor]] = {"parameters": {}, "moments": {}, "gradients": {}}
        for name, tensor in tensors.items():
            part, _, rest = name.partition("/")
            parts[part][rest] = laid_as(tensor, self._orders[name])
        self._parameters = {name: tensor.detach().requires_grad_() for name, tensor in parts["parameters"].items()}
        self._optimizer.take_back(self._parameters, parts["moments"])
        self._gradients = parts["gradients"]

    def _accumulate(self, gradients: Mapping[str, Tensor]) -> None:
        for name, gradient in gradients.items():
            self._gradients[name] = self._gradients[name] + gradient if name in self._gradients else gradient


class AdapterTrainer(Trainer):
    """One adapter of shape `lora`, starting from `tensors` (by the names of `lora.mix`, copied to float32)."""

    def __init__(
        self, decoder: Decoder, lora: LoraConfig, tensors: Mapping[str, Tensor], settings: PassSettings = PassSettings()
    ) -> None:
        self.decoder, self.lora, self.settings = decoder, lora, settings
        super().__init__(float32_leaves(tensors, decoder.device))

    def start(self, datums: Sequence[Datum], loss: LossSettings | None, every_position: bool = False) -> TrainingPass:
        return TrainingPass(
            self.decoder, self._parameters, self._fuse, datums, loss, self.settings, self._accumulate, every_position
        )

    def adapter_tensors(self) -> dict[str, Tensor]:
        """Copies of the parameters, float32 on the CPU."""
        return self.weight_tensors()

    def _fuse(self) -> FusedAdapter:
        return FusedAdapter(self.lora, self._parameters, self.decoder.config, self.decoder.dtype)


def float32_leaves(tensors: Mapping[str, Tensor], device: torch.device, copy: bool = True) -> dict[str, Tensor]:
    """Copies, or the tensors themselves where they fit, that autograd gives gradients for, in the order of names."""
    return {name: tensors[name].to(device, torch.float32, copy=copy).requires_grad_() for name in sorted(tensors)}


def _check_same_names(parameters: Mapping[str, Tensor], tensors: Mapping[str, Tensor]) -> None:
    for name in sorted(parameters.keys() ^ tensors.keys()):
        raise AdapterError(f"tensor {name!r} is {'missing' if name in parameters else 'unknown'}.", "Load this adapter's file.")
    for name, parameter in parameters.items():
        found, expected = tuple(tensors[name].shape), tuple(parameter.shape)
        if found != expected:
            raise AdapterError(f"tensor {name!r} has shape {found}, not {expected}.", "Load an adapter of this rank.")
