"""A new adapter: A random, B zero, so that it starts as the base model itself.

Each tensor has a generator of its own, keyed by the adapter's seed and the tensor's name, so that values depend on nothing else.
"""

import math

import torch
from torch import Tensor

from plait.lora.modules import adapter_shapes
from plait.types.lora import LoraConfig
from plait.types.model import ModelConfig
from plait.types.seeds import derive_seed


def pristine_adapter(config: ModelConfig, lora: LoraConfig) -> dict[str, Tensor]:
    """Float32 tensors on the CPU: A Kaiming-uniform as in LoRA (arXiv 2106.09685) and PEFT, B zero."""
    return {name: _initial(name, shape, lora.seed) for name, shape in adapter_shapes(config, lora).items()}


def _initial(name: str, shape: tuple[int, int], seed: int) -> Tensor:
    if name.endswith(".B"):
        return torch.zeros(shape)
    generator = torch.Generator().manual_seed(derive_seed("adapter", seed, name))
    # Kaiming-uniform with negative slope sqrt(5) comes to this bound.
    bound = 1 / math.sqrt(shape[1])
    return torch.empty(shape).uniform_(-bound, bound, generator=generator)
