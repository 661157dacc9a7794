"""Training of all weights over the ranks of a training group: `TrainedWeights` whose versions are written and read in slices.

A version is the same files as `FullWeights` writes, so what any number of ranks has saved any other number goes on with. The first
rank compares a checkpoint with its digests before all of them read their slices.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from plait.cluster.ranks.messages import Load, Open, Save, Source
from plait.cluster.ranks.sharded_trainer import ShardedTrainer
from plait.cluster.trained_weights import AdapterBase, check_model_tensors, check_training, model_config
from plait.sharding.shard_file import ShardFile
from plait.state.records import MODEL_FILE, OPTIMIZER_FILE, publish_record
from plait.state.step_record import StepRecord
from plait.state.tensor_file import verify_file
from plait.types.policy import Training

if TYPE_CHECKING:
    from plait.cluster.ranks.leader import RankLeader


class ShardedWeights:
    def __init__(self, base: AdapterBase, leader: "RankLeader") -> None:
        self.base, self._leader = base, leader

    @property
    def training(self) -> Training:
        return "full"

    def pristine(self) -> Source:
        return Source()

    def read(self, folder: Path, record: StepRecord, with_optimizer: bool = True, is_verified: bool = False) -> Source:
        check_training(self.training, record)
        weights, optimizer = folder / MODEL_FILE, folder / OPTIMIZER_FILE
        if not is_verified:
            verify_file(weights, record.adapter_digest)
            if with_optimizer:
                verify_file(optimizer, record.optimizer_digest)
        with ShardFile(weights) as file:
            shapes = {name: layout.shape for name, layout in file.layouts().items()}
        check_model_tensors(folder, shapes, self.base.decoder.config)
        return Source(str(weights.absolute()), str(optimizer.absolute()) if with_optimizer else "")

    def trainer(self, state: Source) -> ShardedTrainer:
        key = next(self._leader.keys)
        self._leader.run(Open(key, state))
        return ShardedTrainer(self._leader, key)

    def load(self, trainer: ShardedTrainer, state: Source) -> None:
        self._leader.run(Load(trainer.key, state))

    def write(self, directory: Path, trainer: ShardedTrainer, record: StepRecord) -> StepRecord:
        def save(weights: Path, optimizer: Path) -> tuple[str, str]:
            digests: tuple[str, str] = self._leader.run(Save(trainer.key, str(weights.absolute()), str(optimizer.absolute())))
            return digests

        return publish_record(directory, record.step, model_config(self.base), replace(record, training=self.training), save)
