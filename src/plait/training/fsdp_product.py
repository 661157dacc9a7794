"""The decoder's linear layers with weights that are trained: the values of `models.kernels`, derivatives in inputs and weights."""

from typing import Any

import torch
from torch import Tensor

from plait.models.kernels import make_linear


class TrainedLinear:
    """One site of a layer: weights [out, in] side by side, each a parameter of its own, and their biases."""

    def __init__(self, weights: tuple[Tensor, ...], biases: tuple[Tensor, ...] = ()) -> None:
        self.weights, self.biases = weights, biases
        self.out_features = sum(weight.shape[0] for weight in weights)

    def __call__(self, x_RI: Tensor) -> Tensor:
        y_RO: Tensor = _Product.apply(x_RI, *self.weights)
        return y_RO + torch.cat(self.biases) if self.biases else y_RO


class _Product(torch.autograd.Function):
    """x [W1; W2; ...]^T. Keeps the weights themselves, which FSDP frees and gathers again, and no copy of them."""

    @staticmethod
    def forward(ctx: Any, x_RI: Tensor, *weights: Tensor) -> Tensor:
        ctx.save_for_backward(x_RI, *weights)
        return make_linear(torch.cat(weights), None, prepack=False)(x_RI)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, ...]:
        x_RI, *weights = ctx.saved_tensors
        parts = gradients[0].split([weight.shape[0] for weight in weights], dim=1)
        return (gradients[0] @ torch.cat(weights), *(part.T @ x_RI for part in parts))


def trained_rms_norm(x: Tensor, weight_E: Tensor, epsilon: float) -> Tensor:
    """The values of `models.fused.rms_norm`, with autograd's own derivatives."""
    return torch.nn.functional.rms_norm(x, weight_E.shape, weight_E, epsilon)
