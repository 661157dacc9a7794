"""What the ranks of the tests do. A rank is a process of its own, so a module variable is its state."""

import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast
from unittest import mock

import msgspec
import numpy as np
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

from plait.config.task import LossSettings, OptimizerSettings
from plait.models.decoder import Decoder
from plait.models.hf_config import read_config
from plait.models.invariance import random_weights
from plait.models.tensor_names import tensor_shapes
from plait.models.weights import load_model
from plait.sharding import checkpoint
from plait.sharding.layout import Sharding, cut
from plait.sharding.plan import sync_plan
from plait.sharding.torch_bytes import local_part, sharding_of, tensor_bytes
from plait.sharding.weight_sync import SyncCount, sync_weights
from plait.state.tensor_file import digest_tensors
from plait.training import fsdp_base, fsdp_checkpoint
from plait.training.fsdp_trainer import FsdpTrainer
from plait.training.full_trainer import FullTrainer
from plait.training.trainer import AdapterTrainer
from plait.training.training_pass import PassSettings
from plait.types.errors import PlaitError
from plait.types.model import ModelConfig
from tests.sharding.arrays import empty_shard, flat_bytes, full_arrays, shard_of
from tests.training.tiny import LORA, MODEL, make_adapter, make_datums, plain_logprobs, same_bits

PPO = LossSettings(kind="ppo")
PENALISED = LossSettings(kind="ppo", kl_to_base=0.1)
OPTIMIZER = OptimizerSettings(learning_rate=1e-3, max_grad_norm=0.05, weight_decay=0.1)
SETTINGS = PassSettings(micro_batch_tokens=24)
_trainers: list[FsdpTrainer] = []


def make_trainer(settings: PassSettings = SETTINGS, dtype: str = "float32", mesh_shape: Sequence[int] = (), width: int = 2) -> None:
    """On a mesh of all ranks, or of the first ones."""
    torch.set_num_threads(1)
    num_ranks = int(torch.tensor(mesh_shape or (dist.get_world_size(),)).prod())
    names = ("replica", "slice")[-max(1, len(mesh_shape)) :]
    mesh = DeviceMesh("cpu", torch.arange(num_ranks).reshape(tuple(mesh_shape) or (-1,)), mesh_dim_names=names)
    _trainers.clear()
    if dist.get_rank() < num_ranks:
        weights = random_weights(MODEL, torch.float32)
        _trainers[:] = [FsdpTrainer(MODEL, mesh, weights, settings, getattr(torch, dtype), width)]


def train(steps: range) -> list[tuple[float, float]]:
    """(loss, norm of the gradient) of each step."""
    (trainer,) = _trainers
    results = []
    for step in steps:
        loss = trainer.forward_backward(make_datums(step), PPO).metrics["loss"]
        results.append((loss, trainer.optim_step(OPTIMIZER)["grad_norm"]))
    return results


def num_micro_batches() -> int:
    return _trainers[0].start(make_datums(0), PPO).num_slices_left


def state_digest() -> str:
    """Of this rank's part of weights, moments and step."""
    return digest_tensors({name: local_part(tensor) for name, tensor in _trainers[0].state().items()})


def save(folder: Path) -> None:
    fsdp_checkpoint.save(_trainers[0], folder / "shards")
    fsdp_checkpoint.save_dcp(_trainers[0], folder / "dcp")


def load(folder: Path, kind: str) -> tuple[int, int]:
    """Bytes read, and bytes of this rank's state, which held something else before."""
    (trainer,) = _trainers
    for tensor in trainer.state().values():
        local_part(tensor).fill_(7)
    read = {"shards": fsdp_checkpoint.load, "dcp": fsdp_checkpoint.load_dcp}[kind](trainer, folder / kind)
    return read, sum(local_part(tensor).nbytes for tensor in trainer.state().values())


def save_and_die(folder: Path, kind: str, moment: str) -> None:
    """Train on, and save; one rank gets SIGKILL when its share is half written, or rank 0 just before all is put in place."""
    train(range(7, 8))
    if moment == "publishing" and dist.get_rank() == 0:
        for module in (checkpoint, fsdp_checkpoint):
            mock.patch.object(module, "replace_folder", _die).start()
    if moment == "writing" and dist.get_rank() == 1:
        mock.patch.object(checkpoint, "write_shard", _half_write).start()
        mock.patch.object(dcp.FileSystemWriter, "write_data", _half_write_dcp).start()
    {"shards": fsdp_checkpoint.save, "dcp": fsdp_checkpoint.save_dcp}[kind](_trainers[0], folder / kind)


def _half_write(path: Path, tensors: Any) -> int:
    path.write_bytes(b"half")
    return _die()


def _half_write_dcp(writer: dcp.FileSystemWriter, *_: Any) -> int:
    return _half_write(Path(writer.path) / "__1_0.distcp", {})


def _die(*_: Any) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


def errors() -> list[str]:
    """What is refused, on this rank, and that the trainer goes on as if nothing had been asked."""
    (trainer,) = _trainers
    broken = [msgspec.structs.replace(datum, logprobs=(float("nan"),) * len(datum.tokens)) for datum in make_datums(0)]
    before, found = state_digest(), []
    for call in (
        lambda: trainer.optim_step(OPTIMIZER),
        lambda: trainer.forward_backward(make_datums(0), LossSettings(kind="ppo", kl_to_base=0.1)),
        lambda: trainer.forward_backward(broken, PPO),
        lambda: fsdp_checkpoint.load(trainer, Path("/nowhere")),
    ):
        found.append(_error(call))
    assert not trainer.has_gradients
    assert state_digest() == before
    return found


def _error(call: Callable[[], Any]) -> str:
    try:
        call()
    except PlaitError as error:
        return str(error)
    return "no error"


def compare_after_reset(dtype: str) -> bool:
    """Whether log-probabilities have the bits of the trainer of adapters, with an adapter that adds nothing."""
    make_trainer(SETTINGS, dtype)
    (trainer,) = _trainers
    weights = {name: tensor.to(getattr(torch, dtype)) for name, tensor in random_weights(MODEL, torch.float32).items()}
    adapter = {name: torch.zeros_like(tensor) for name, tensor in make_adapter().items()}
    expected = AdapterTrainer(Decoder(MODEL, weights), LORA, adapter, SETTINGS).forward(make_datums(0))
    found = trainer.forward(make_datums(0))
    return all((left == right).all() for left, right in zip(found, expected, strict=True))


def differences_from_full(dtype: str) -> list[str]:
    """Where three steps differ from those of `FullTrainer`, in any bit; the last batch has nothing that counts."""
    config: ModelConfig = msgspec.structs.replace(MODEL, qk_norm=True, family="qwen3")
    weights, settings = _all_weights(config), PassSettings(micro_batch_tokens=24)
    base = Decoder(config, {name: tensor.to(getattr(torch, dtype)) for name, tensor in weights.items()})
    mesh = DeviceMesh("cpu", torch.arange(dist.get_world_size()))
    sharded = FsdpTrainer(config, mesh, weights, settings, base.dtype, base=base)
    whole, found = FullTrainer(base, weights, settings), []
    for step in range(3):
        datums = (
            make_datums(step)
            if step < 2
            else [msgspec.structs.replace(d, weights=(0.0,) * len(d.tokens)) for d in make_datums(step)]
        )
        left, right = (t.forward_backward(datums, PENALISED) for t in (sharded, whole))
        found += [] if left.metrics == right.metrics and same_rows(left.logprobs, right.logprobs) else [f"pass {step}"]
        found += [] if sharded.has_gradients == whole.has_gradients == (step < 2) else [f"gradients {step}"]
        if whole.has_gradients:
            found += [] if sharded.optim_step(OPTIMIZER) == whole.optim_step(OPTIMIZER) else [f"step {step}"]
    full = {f"weight.{name}": tensor for name, tensor in whole.weight_tensors().items()} | whole.state_tensors()
    return found + [name for name, tensor in sharded.state().items() if not _has_slice(tensor, full[name])]


def same_rows(left: Sequence[np.ndarray], right: Sequence[np.ndarray]) -> bool:
    return all(np.array_equal(a, b, equal_nan=True) for a, b in zip(left, right, strict=True))


def _has_slice(part: Tensor, full: Tensor) -> bool:
    """Whether this rank's part of a tensor is that of `full`."""
    if not isinstance(part, DTensor):
        return torch.equal(part, full)
    box = sharding_of({"a": part}).box("a", dist.get_rank())
    return torch.equal(part.to_local(), full[tuple(slice(*bounds) for bounds in box)])


def _all_weights(config: ModelConfig) -> dict[str, Tensor]:
    weights, generator = random_weights(config, torch.float32), torch.Generator().manual_seed(1)
    for name, shape in tensor_shapes(config).items():
        weights.setdefault(name, torch.randn(shape, generator=generator) * 0.3)
    return weights


def gradient_errors(changes: dict[str, Any], settings: PassSettings) -> dict[str, float]:
    """Largest difference of each weight's gradient from a plain loop in float64, relative to the largest gradient."""
    config: ModelConfig = msgspec.structs.replace(MODEL, **changes)
    weights = _all_weights(config)
    trainer = FsdpTrainer(config, DeviceMesh("cpu", torch.arange(dist.get_world_size())), weights, settings)
    trainer.forward_backward(make_datums(1), LossSettings(kind="importance_sampling"))
    leaves = {name: tensor.double().requires_grad_() for name, tensor in weights.items()}
    for datum in make_datums(1):
        logprobs_T = plain_logprobs(Decoder(config, leaves), datum, None)
        given = torch.tensor(datum.logprobs, dtype=torch.float64)
        (-((logprobs_T - given).exp() * torch.tensor(datum.advantages)).sum()).backward()
    scale = max(leaf.grad.abs().max().item() for leaf in leaves.values() if leaf.grad is not None)
    sums = {name: cast(DTensor, gradient).full_tensor() for name, gradient in trainer._gradients.items()}
    assert sums.keys() == leaves.keys()
    return {name: (sums[name] - leaf.grad).abs().max().item() / scale for name, leaf in leaves.items() if leaf.grad is not None}


def sync_arrays(training: Sharding, rollout: Sharding, training_ranks: list[int], rollout_ranks: list[int]) -> SyncCount:
    """Of known arrays; fails where this rank's rollout shard is not what it should be."""
    full = full_arrays({name: (layout.shape, layout.dtype) for name, layout in training.tensors.items()})
    me = dist.get_rank()
    source = shard_of(full, training, training_ranks.index(me)) if me in training_ranks else {}
    target = empty_shard(rollout, rollout_ranks.index(me)) if me in rollout_ranks else {}
    plan = sync_plan(training, rollout)
    count = sync_weights(plan, training_ranks, rollout_ranks, flat_bytes(source), flat_bytes(target))
    expected = shard_of(full, rollout, rollout_ranks.index(me)) if me in rollout_ranks else {}
    assert all((target[name] == expected[name]).all() for name in expected)
    return count


def sync_trainer(rollout_ranks: list[int], dim: int | None) -> tuple[SyncCount, int]:
    """The trained weights of the first ranks to others, which keep them cut along `dim`; counts, and bytes that are wanted here.

    A rollout rank that holds everything checks that its decoder gives the trainer's log-probabilities.
    """
    weights = _trainers[0].weights() if _trainers else {}
    told: list[Any] = [sharding_of(weights), _trainers[0].forward(make_datums(3)) if _trainers else None]
    dist.broadcast_object_list(told, src=0)
    training, logprobs = told
    rollout = _cut_all(training, dim, len(rollout_ranks))
    me, target = dist.get_rank(), dict[str, Tensor]()
    if me in rollout_ranks:
        rank = rollout_ranks.index(me)
        target = {name: torch.zeros(rollout.shard_shape(name, rank)) for name in rollout.tensors}
    source = {name: tensor_bytes(tensor) for name, tensor in weights.items()}
    targets = {name: tensor_bytes(tensor) for name, tensor in target.items()}
    count = sync_weights(sync_plan(training, rollout), range(training.num_ranks), rollout_ranks, source, targets)
    if target and dim is None:
        adapter = {name: torch.zeros_like(tensor) for name, tensor in make_adapter().items()}
        found = AdapterTrainer(Decoder(MODEL, target), LORA, adapter, SETTINGS).forward(make_datums(3))
        assert all((left == right).all() for left, right in zip(found, logprobs, strict=True))
    return count, sum(tensor.nbytes for tensor in target.values())


def _cut_all(sharding: Sharding, dim: int | None, num_ranks: int) -> Sharding:
    """Matrices along `dim`, vectors whole."""
    return Sharding(
        (num_ranks,),
        {
            name: cut(layout.shape, layout.dtype, dim if len(layout.shape) > 1 else None, 0, num_ranks)
            for name, layout in sharding.tensors.items()
        },
    )


def train_if_training(steps: range) -> list[tuple[float, float]]:
    return train(steps) if _trainers else []


def load_base_only(folder: Path) -> tuple[FsdpTrainer, int]:
    trainer = FsdpTrainer(read_config(folder), DeviceMesh("cpu", torch.arange(dist.get_world_size())))
    return trainer, fsdp_base.load_base(trainer, folder)


def load_gguf(path: Path) -> bool:
    """Whether the weights are those of the reader of whole models."""
    config, weights = load_model(path)
    trainer = FsdpTrainer(config, DeviceMesh("cpu", torch.arange(dist.get_world_size())))
    fsdp_base.load_base(trainer, path)
    return same_bits(_full({name: cast(DTensor, tensor) for name, tensor in trainer.weights().items()}), weights)


def load_base(folder: Path) -> tuple[int, int, bool]:
    """Bytes read, bytes of this rank's weights in the files' dtype, and whether they are those of the reader of whole models."""
    trainer, num_read = load_base_only(folder)
    weights = {name: cast(DTensor, tensor) for name, tensor in trainer.weights().items()}
    return num_read, sum(local_part(t).nbytes for t in weights.values()), same_bits(_full(weights), load_model(folder)[1])


def _full(tensors: dict[str, DTensor]) -> dict[str, Tensor]:
    return {name: tensor.full_tensor() for name, tensor in tensors.items()}
