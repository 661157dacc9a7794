"""What the ranks of the tests do. State is kept in module variables: a rank is a process of its own."""

from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

from plait.config.task import LossSettings, OptimizerSettings
from plait.models.invariance import random_weights
from plait.sharding.torch_bytes import local_part
from plait.training import fsdp_checkpoint
from plait.training.fsdp_trainer import FsdpTrainer
from plait.training.training_pass import PassSettings
from tests.training.tiny import MODEL, make_datums

LOSS = LossSettings(kind="ppo")
OPTIMIZER = OptimizerSettings(learning_rate=1e-3, max_grad_norm=0.05, weight_decay=0.1)
_trainers: list[FsdpTrainer] = []


def make_trainer(settings: PassSettings) -> None:
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("shard",))
    _trainers[:] = [FsdpTrainer(MODEL, mesh, random_weights(MODEL, torch.float32), settings)]


def train(steps: range) -> list[tuple[float, float]]:
    """(loss, norm) of each step."""
    (trainer,) = _trainers
    results = []
    for step in steps:
        loss = trainer.forward_backward(make_datums(step), LOSS).metrics["loss"]
        results.append((loss, trainer.optim_step(OPTIMIZER)["grad_norm"]))
    return results


def save_twice(folder: str) -> None:
    fsdp_checkpoint.save(_trainers[0], Path(folder) / "shards")
    fsdp_checkpoint.save_dcp(_trainers[0], Path(folder) / "dcp")


def load_both(folder: str) -> tuple[int, int, int, bool]:
    """Bytes read from Plait's shards and by DCP, bytes of this rank's state, and whether both gave the same bits."""
    (trainer,) = _trainers
    by_dcp = fsdp_checkpoint.load_dcp(trainer, Path(folder) / "dcp")
    first = {name: local_part(tensor).clone() for name, tensor in trainer.state().items()}
    for tensor in trainer.state().values():
        local_part(tensor).fill_(7)
    by_shards = fsdp_checkpoint.load(trainer, Path(folder) / "shards")
    second = {name: local_part(tensor) for name, tensor in trainer.state().items()}
    needed = sum(tensor.nbytes for tensor in second.values())
    return by_shards, by_dcp, needed, all(torch.equal(first[name], second[name]) for name in first)
