"""What roles need of a trainer and of its passes, wherever the weights are: in this process, or in slices over several."""

from collections.abc import Sequence
from typing import Protocol

from plait.config.task import LossSettings, OptimizerSettings
from plait.training.training_pass import PassResult
from plait.types.datum import Datum


class RunningPass(Protocol):
    """As `TrainingPass`: an iterator over micro-batches, with a result after the last."""

    @property
    def num_slices_left(self) -> int: ...

    def __next__(self) -> None: ...

    def result(self) -> PassResult: ...


class PolicyTrainer(Protocol):
    """As `Trainer`."""

    def start(self, datums: Sequence[Datum], loss: LossSettings | None, every_position: bool = False) -> RunningPass: ...

    @property
    def has_gradients(self) -> bool: ...

    def optim_step(self, settings: OptimizerSettings, learning_rate: float | None = None) -> dict[str, float]: ...

    def skip_step(self) -> dict[str, float]: ...

    def discard_gradients(self) -> None: ...

    def close(self) -> None:
        """Let go of the weights."""
        ...
