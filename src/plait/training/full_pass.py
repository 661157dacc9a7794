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
        self._sums: dict[str, Tensor] = {}
        for parameter in self._parameters.values():
            parameter.grad = None

    def _run(self, batch: PackedBatch) -> None:
        super()._run(batch)
        self._num_run += 1
        if not self._waiting or self._num_run % ROUND_MICRO_BATCHES == 0:
            self._end_round()

    def _backward(self, loss: Tensor) -> None:
        """Weight by weight into the round's gradients: those of a micro-batch are never there as a whole."""
        loss.backward(inputs=list(self._parameters.values()))

    def _end_round(self) -> None:
        for name, parameter in self._parameters.items():
            if parameter.grad is not None:
                self._sums[name] = self._sums[name].add_(parameter.grad) if name in self._sums else parameter.grad
            parameter.grad = None
        self._gradients = {} if self._waiting else self._sums
