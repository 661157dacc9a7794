"""A pass of a model that trains all of its weights in one process; `fsdp_pass` has the same bits over two."""

from typing import Any

from torch import Tensor

from plait.training.packing import PackedBatch
from plait.training.training_pass import TrainingPass

ROUND_MICRO_BATCHES = 2
"""Gradients of so many micro-batches are summed, and that sum is added to those of earlier rounds: two ranks sum so too."""


class FullPass(TrainingPass):
    """As `TrainingPass`; at any time there are gradients of a round, and the sum of those before."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._num_run = 0
        self._round: dict[str, Tensor] = {}

    def _run(self, batch: PackedBatch) -> None:
        super()._run(batch)
        self._num_run += 1
        if not self._waiting or self._num_run % ROUND_MICRO_BATCHES == 0:
            self._end_round()

    def _backward(self, loss: Tensor) -> None:
        """Weight by weight into the round's gradients: those of a micro-batch are never there as a whole."""
        for name, parameter in self._parameters.items():
            parameter.grad = self._round.pop(name, None)
        loss.backward(inputs=list(self._parameters.values()))
        for name, parameter in self._parameters.items():
            assert parameter.grad is not None
            self._round[name], parameter.grad = parameter.grad, None

    def _end_round(self) -> None:
        for name, gradient in self._round.items():
            self._gradients[name] = self._gradients[name].add_(gradient) if name in self._gradients else gradient
        self._round = {}
