"""What one rank holds: its slices of the policies that are open, and the pass that each of them is in.

`run` is called on every rank of the group with the same commands in the same order. A PlaitError comes on all of them alike and
leaves them alike; after any other error the group is over.
"""

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.distributed.device_mesh import DeviceMesh

from plait.cluster.ranks.group import rank_device
from plait.cluster.ranks.messages import Close, Command, Discard, JoinGroup, Load, Open, RunSlice, Save, Source, StartPass, Step
from plait.config.task import LossSettings, OptimizerSettings
from plait.models.decoder import Decoder
from plait.models.hf_config import read_config
from plait.models.weights import load_model
from plait.sharding.checkpoint import agree
from plait.training import fsdp_record
from plait.training.fsdp_base import load_base
from plait.training.fsdp_checkpoint import gather_texts
from plait.training.fsdp_pass import FsdpPass
from plait.training.fsdp_trainer import FsdpTrainer
from plait.training.training_pass import PassSettings
from plait.types.model import ModelConfig


class Shards:
    """`base` is the frozen base, if this rank has it already; else it is read when a penalty first needs it."""

    def __init__(self, settings: JoinGroup, mesh: DeviceMesh, base: Decoder | None = None) -> None:
        self.trainers: dict[int, FsdpTrainer] = {}
        self.passes: dict[int, FsdpPass] = {}
        self._settings, self._mesh, self._base = settings, mesh, base
        self._device = rank_device(settings.device, settings.rank)
        self._dtype: torch.dtype = getattr(torch, settings.dtype)

    def run(self, command: Command) -> Any:
        match command:
            case Open(key, source):
                self.trainers[key] = self._opened(source)
            case Load(key, source):
                self._load(self.trainers[key], source)
            case Save(key, weights, optimizer):
                return fsdp_record.save(self.trainers[key], Path(weights), Path(optimizer))
            case StartPass():
                return self._start(command)
            case RunSlice(key):
                next(self.passes[key], None)
            case Step(key, text, learning_rate):
                return self.trainers[key].optim_step(OptimizerSettings.model_validate_json(text), learning_rate)
            case Discard(key):
                self.trainers[key].discard_gradients()
            case Close(key):
                self.passes.pop(key, None)
                self.trainers.pop(key, None)
                gc.collect()  # FSDP's hooks and modules hold each other, and the weights.

    def _opened(self, source: Source) -> FsdpTrainer:
        settings = self._settings
        passes = PassSettings(settings.micro_batch_tokens, settings.checkpoint_layers)
        trainer = FsdpTrainer(self._config(), self._mesh, None, passes, self._dtype)
        self._load(trainer, source)
        return trainer

    def _load(self, trainer: FsdpTrainer, source: Source) -> None:
        if source.weights:
            optimizer = Path(source.optimizer) if source.optimizer else None
            fsdp_record.load(trainer, fsdp_record.Files(Path(source.weights), optimizer))
        else:
            agree(gather_texts(trainer.group), self._base_into(trainer), "the base could not be read")

    def _base_into(self, trainer: FsdpTrainer) -> Callable[[], None]:
        def fill() -> None:
            load_base(trainer, Path(self._settings.model_path))
            fsdp_record.start_anew(trainer)

        return fill

    def _start(self, command: StartPass) -> FsdpPass:
        loss = LossSettings.model_validate_json(command.loss_json) if command.loss_json else None
        trainer = self.trainers[command.key]
        trainer.base = self._frozen_base() if loss is not None and loss.kl_to_base > 0 else None
        self.passes[command.key] = trainer.start(command.datums, loss, command.every_position)
        return self.passes[command.key]

    def _config(self) -> ModelConfig:
        return self._base.config if self._base is not None else _read_config(Path(self._settings.model_path))

    def _frozen_base(self) -> Decoder:
        if self._base is None:
            self._base = Decoder(*load_model(Path(self._settings.model_path), self._dtype, self._device))
        return self._base


def _read_config(path: Path) -> ModelConfig:
    if path.suffix != ".gguf":
        return read_config(path)
    from plait.models.gguf_file import GgufFile

    return GgufFile(path).config
