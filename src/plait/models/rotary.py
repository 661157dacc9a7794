"""Rotary position embedding and its scalings (RoFormer, arXiv 2104.09864; YaRN, arXiv 2309.00071; Llama 3.1)."""

import math
from typing import Any

import torch
from torch import Tensor

from plait.types.errors import ModelError
from plait.types.model import ModelConfig, RopeScaling


def rotary_frequencies(config: ModelConfig) -> tuple[Tensor, float]:
    """Inverse frequencies [head_dim / 2] in float32, and the factor on cosines and sines."""
    exponent = torch.arange(0, config.head_dim, 2, dtype=torch.int64).float() / config.head_dim
    inverse = 1.0 / (config.rope_theta**exponent)
    scaling = config.rope_scaling
    if scaling.kind in ("default", "dynamic"):  # dynamic differs from default only beyond the trained context
        return inverse, 1.0
    if scaling.kind == "linear":
        return inverse / scaling.factor, 1.0
    if scaling.kind == "llama3":
        return _llama3(inverse, scaling), 1.0
    if scaling.kind == "yarn":
        return _yarn(inverse, config)
    raise ModelError(
        f"rope scaling {scaling.kind!r} is not supported.", "Use a model with default, linear, dynamic, llama3 or yarn."
    )


def _llama3(inverse: Tensor, scaling: RopeScaling) -> Tensor:
    low, high = float(scaling.low_freq_factor or 1.0), float(scaling.high_freq_factor or 4.0)
    original = float(scaling.original_max_context_tokens or 8192)
    wavelength = 2 * math.pi / inverse
    smooth = ((original / wavelength - low) / (high - low)).clamp(0, 1)
    return (1 - smooth) * inverse / scaling.factor + smooth * inverse


def _yarn(inverse: Tensor, config: ModelConfig) -> tuple[Tensor, float]:
    scaling = config.rope_scaling
    original = float(scaling.original_max_context_tokens or config.max_context_tokens)
    fast, slow = float(scaling.beta_fast or 32.0), float(scaling.beta_slow or 1.0)

    def dimension_of(rotations: float) -> float:
        return config.head_dim * math.log(original / (rotations * 2 * math.pi)) / (2 * math.log(config.rope_theta))

    low, high = max(math.floor(dimension_of(fast)), 0), min(math.ceil(dimension_of(slow)), config.head_dim - 1)
    ramp = ((torch.arange(config.head_dim // 2).float() - low) / max(high - low, 0.001)).clamp(0, 1)
    attention = scaling.attention_factor or (0.1 * math.log(scaling.factor) + 1.0 if scaling.factor > 1 else 1.0)
    return inverse / scaling.factor * ramp + inverse * (1 - ramp), attention


class Rotary:
    """Turns queries and keys by their absolute positions."""

    def __init__(self, config: ModelConfig, device: torch.device) -> None:
        inverse, self.factor = rotary_frequencies(config)
        self.inverse = inverse.to(device)

    def tables(self, positions_R: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Cosines and signed sines for `rotate`, each [R, 1, head_dim]."""
        angles = positions_R[:, None].float() * self.inverse
        cos, sin = angles.cos() * self.factor, angles.sin() * self.factor
        return torch.cat([cos, cos], dim=-1)[:, None].to(dtype), torch.cat([-sin, sin], dim=-1)[:, None].to(dtype)


def rotate(x_RHD: Tensor, cos_R1D: Tensor, sin_R1D: Tensor) -> Tensor:
    """Turn each pair (i, i + head_dim / 2); the first half of the sines is negative. Differentiable in x."""
    if not x_RHD.requires_grad:
        return _rotate(x_RHD, cos_R1D, sin_R1D)
    rotated: Tensor = _Rotate.apply(x_RHD, cos_R1D, sin_R1D)
    return rotated


def _rotate(x_RHD: Tensor, cos_R1D: Tensor, sin_R1D: Tensor) -> Tensor:
    return x_RHD * cos_R1D + _swap_halves(x_RHD) * sin_R1D


def _swap_halves(x_RHD: Tensor) -> Tensor:
    first, second = x_RHD.chunk(2, dim=-1)
    return torch.cat([second, first], dim=-1)


class _Rotate(torch.autograd.Function):
    """One node; autograd's own would build two full-size parts for the halves."""

    @staticmethod
    def forward(ctx: Any, x_RHD: Tensor, cos_R1D: Tensor, sin_R1D: Tensor) -> Tensor:
        ctx.save_for_backward(cos_R1D, sin_R1D)
        return _rotate(x_RHD, cos_R1D, sin_R1D)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        cos_R1D, sin_R1D = ctx.saved_tensors
        return gradients[0] * cos_R1D + _swap_halves(gradients[0] * sin_R1D), None, None
