"""The workers of a base model whose rollouts have processes of their own, while its training shares groups with that of others:
the interface of `cluster.workers.Workers`.

Rollouts of a step then never wait for another job, and a trainer, which is idle for most of a step, serves several.
"""

from plait.cluster.all_of import all_of
from plait.cluster.groups.group_move import MoveListener
from plait.cluster.groups.grouped_workers import GroupedWorkers
from plait.cluster.messages import Ready, ToWorker
from plait.cluster.workers import Workers


class SharedTraining:
    """`rollouts` and `training` are closed with it."""

    moving_engines: tuple[str, ...] = ()
    """Only trainers move."""

    def __init__(self, rollouts: Workers, training: GroupedWorkers) -> None:
        self.rollouts, self.training = rollouts, training

    @property
    def names(self) -> tuple[str, ...]:
        return self.rollouts.names + self.training.names

    @property
    def engine_names(self) -> tuple[str, ...]:
        return self.rollouts.engine_names

    @property
    def pids(self) -> dict[str, int]:
        return self.rollouts.pids | self.training.pids

    @property
    def on_move(self) -> MoveListener | None:
        return self.training.on_move

    @on_move.setter
    def on_move(self, listener: MoveListener | None) -> None:
        self.training.on_move = listener

    async def start(self) -> Ready:
        """What the first engine reports stands for all."""
        return (await all_of([self.rollouts.start(), self.training.start()]))[0]

    def send_to(self, worker: str, message: ToWorker) -> None:
        owner = self.rollouts if worker in self.rollouts.names else self.training
        owner.send_to(worker, message)

    def lend_threads(self, trainer_is_idle: bool) -> None:
        """A trainer's threads are its group's, which may be at work for others."""

    async def close(self) -> None:
        await all_of([self.training.close(), self.rollouts.close()])
