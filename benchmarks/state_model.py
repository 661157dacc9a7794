"""Models whose tensors the benchmark of the state manager moves."""

from collections.abc import Sequence

import msgspec
import torch
from torch import Tensor

from plait.lora.initial import pristine_adapter
from plait.lora.targets import ATTENTION, MLP
from plait.models.catalogue import list_models
from plait.models.tensor_names import tensor_shapes
from plait.models.tiny import tiny_config
from plait.models.weights import load_model
from plait.types.lora import LoraConfig
from plait.types.model import ModelConfig

MODEL = "smollm2-135m-instruct"
RANK = 16
WIDE = {"vocab_size": 49152, "hidden_size": 576, "intermediate_size": 1536, "num_heads": 9, "num_kv_heads": 3, "head_dim": 64}
"""Of SmolLM2-135M, which has 30 layers."""


def base_model(is_quick: bool) -> tuple[str, ModelConfig, dict[str, Tensor]]:
    """Name, shape and bfloat16 weights: SmolLM2 if it is here, else random ones of its shape; quick takes two layers."""
    path = next((entry.path for entry in list_models() if entry.name == MODEL), None)
    if path is not None and not is_quick:
        return MODEL, *load_model(path, torch.bfloat16)
    layers = 2 if is_quick else 30
    config = msgspec.structs.replace(tiny_config("llama"), num_layers=layers, **WIDE)
    generator = torch.Generator().manual_seed(0)
    weights = {name: torch.randn(shape, generator=generator).bfloat16() for name, shape in tensor_shapes(config).items()}
    return f"random, {layers} layers", config, weights


def other_model(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Of the same shape, with no tensor in common."""
    return {name: -tensor for name, tensor in weights.items()}


def trained_adapter(config: ModelConfig, seed: int) -> dict[str, Tensor]:
    """Rank 16 on all linear layers, float32, both factors random: no two seeds have a tensor in common."""
    generator = torch.Generator().manual_seed(seed)
    shapes = pristine_adapter(config, LoraConfig(RANK, RANK, (*ATTENTION, *MLP)))
    return {name: torch.randn(tensor.shape, generator=generator) for name, tensor in shapes.items()}


def num_bytes(groups: Sequence[dict[str, Tensor]]) -> int:
    return sum(tensor.nbytes for group in groups for tensor in group.values())
