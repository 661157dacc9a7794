"""A trainer whose weights, gradients and moments lie in slices on all ranks of a training group, as seen from the first one."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from plait.cluster.ranks.messages import Close, Discard, RunSlice, StartPass, Step
from plait.config.task import LossSettings, OptimizerSettings
from plait.training.fsdp_pass import FsdpPass
from plait.training.training_pass import PassResult
from plait.types.datum import Datum
from plait.types.errors import PlaitError

if TYPE_CHECKING:
    from plait.cluster.ranks.leader import RankLeader


class ShardedTrainer:
    """A `PolicyTrainer`; `key` names it on every rank."""

    def __init__(self, leader: "RankLeader", key: int) -> None:
        self.leader, self.key = leader, key

    def start(self, datums: Sequence[Datum], loss: LossSettings | None, every_position: bool = False) -> "ShardedPass":
        text = "" if loss is None else loss.model_dump_json()
        return ShardedPass(self, self.leader.run(StartPass(self.key, tuple(datums), text, every_position)))

    @property
    def has_gradients(self) -> bool:
        return self.leader.shards.trainers[self.key].has_gradients

    def optim_step(self, settings: OptimizerSettings, learning_rate: float | None = None) -> dict[str, float]:
        metrics: dict[str, float] = self.leader.run(Step(self.key, settings.model_dump_json(), learning_rate))
        return metrics

    def skip_step(self) -> dict[str, float]:
        if self.has_gradients:
            raise PlaitError("gradients wait for a step, so it cannot be skipped.", "Call optim_step or discard_gradients.")
        return {"grad_norm": 0.0}

    def discard_gradients(self) -> None:
        self.leader.run(Discard(self.key))

    def close(self) -> None:
        self.leader.run(Close(self.key))


class ShardedPass:
    """A `RunningPass`: a slice is a micro-batch of each rank."""

    def __init__(self, trainer: ShardedTrainer, own: FsdpPass) -> None:
        self._trainer, self._own = trainer, own

    @property
    def num_slices_left(self) -> int:
        return self._own.num_slices_left

    def __iter__(self) -> "ShardedPass":
        return self

    def __next__(self) -> None:
        if not self._own.is_open:
            raise StopIteration
        self._trainer.leader.run(RunSlice(self._trainer.key))

    def result(self) -> PassResult:
        for _ in self:
            pass
        return self._own.result()
