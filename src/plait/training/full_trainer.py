"""Training of all weights of a model, tied ones once: the trainer of a task that has no adapter.

Memory for each parameter: a float32 master, two moments and a gradient (four bytes each, a second gradient while a pass runs), and
the weight in the model's dtype. The frozen base stays as it is and is what penalties towards the base compare with.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from plait.config.task import LossSettings, OptimizerSettings
from plait.models.decoder import Decoder
from plait.models.trained_decoder import TrainedDecoder
from plait.training.exact_norm import exact_norm
from plait.training.full_pass import FullPass
from plait.training.trainer import Trainer, float32_leaves
from plait.training.training_pass import PassSettings
from plait.types.datum import Datum


class FullTrainer(Trainer):
    """Starts from `tensors`, by the names of `models.tensor_names`, in float32; `base` is the frozen base.

    Without a copy the tensors are this trainer's from now on.
    """

    def __init__(
        self, base: Decoder, tensors: Mapping[str, Tensor], settings: PassSettings = PassSettings(), copy: bool = True
    ) -> None:
        self.base, self.settings = base, settings
        super().__init__(float32_leaves(tensors, base.device, copy), exact)
        self.decoder = TrainedDecoder(base.config, self._parameters, base.dtype)

    def start(self, datums: Sequence[Datum], loss: LossSettings | None, every_position: bool = False) -> FullPass:
        return FullPass(
            self.decoder, self._parameters, None, datums, loss, self.settings, self._accumulate, every_position, base=self.base
        )

    def optim_step(self, settings: OptimizerSettings, learning_rate: float | None = None) -> dict[str, float]:
        metrics = super().optim_step(settings, learning_rate)
        self.decoder.refresh()
        return metrics

    def load_state(self, weights: Mapping[str, Tensor], state_tensors: Mapping[str, Tensor], copy: bool = True) -> None:
        super().load_state(weights, state_tensors, copy)
        self.decoder.refresh()

    # ---- on the device and off it

    @property
    def reserved_bytes(self) -> int:
        """Also of the weights that are computed with, and of the gradients of one pass beside those that wait."""
        values = sum(parameter.numel() for parameter in self._parameters.values())
        return super().reserved_bytes + values * (4 + self.base.dtype.itemsize)

    def give_up(self) -> dict[str, Tensor]:
        tensors = super().give_up()
        self.decoder.give_up()
        self.decoder.masters = self._parameters
        return tensors

    def take_back(self, tensors: Mapping[str, Tensor]) -> None:
        super().take_back(tensors)
        self.decoder.masters = self._parameters
        self.decoder.refresh()


def exact(gradients_P: Sequence[Tensor]) -> Tensor:
    """Their norm as any number of ranks finds it."""
    return torch.tensor(exact_norm(gradients_P), dtype=torch.float64)
