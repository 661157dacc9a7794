"""The worker of a deployment that comes to a group, and the weights of its base, which the group is to keep."""

from collections.abc import Callable
from pathlib import Path

import torch

from plait.cluster.messages import Configure, FromWorker, Starting
from plait.cluster.worker import Weights, Worker
from plait.models.weights import load_model
from plait.types.model import ModelConfig


def load_worker(settings: Configure, tell: Callable[[FromWorker], None], said: list[FromWorker]) -> tuple[Worker, Weights]:
    """What is under way is told at once; the rest is `said`, to be told when it is known whether there is room."""
    weights: Weights = {}

    def load(path: Path, dtype: torch.dtype, device: torch.device) -> tuple[ModelConfig, Weights]:
        config, loaded = load_model(path, dtype, device)
        weights.update(loaded)
        return config, loaded

    def say(message: FromWorker) -> None:
        if isinstance(message, Starting):
            tell(message)
        else:
            said.append(message)

    return Worker(say, settings, load), weights
