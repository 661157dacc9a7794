"""The decoder's linear layers over float32 weights that FSDP gathers: the values and the gradients of `models.trained_decoder`."""

from typing import Any

import torch
from torch import Tensor

from plait.models.kernels import Linear, input_gradient, make_linear


class TrainedLinear:
    """One site of a layer: weights [out, in] side by side, each a parameter of its own, and their biases."""

    def __init__(self, weights: tuple[Tensor, ...], biases: tuple[Tensor, ...] = ()) -> None:
        self.weights, self.biases = weights, biases
        self.out_features = sum(weight.shape[0] for weight in weights)

    def __call__(self, x_RI: Tensor) -> Tensor:
        y_RO: Tensor = _Product.apply(x_RI, *self.weights)
        return y_RO + torch.cat(self.biases).to(x_RI.dtype) if self.biases else y_RO


class _Product(torch.autograd.Function):
    """x [W1; W2; ...]^T in x's dtype; the weights' gradients are added up in float32.

    Keeps the weights themselves, which FSDP frees and gathers again, and no copy of them.
    """

    @staticmethod
    def forward(ctx: Any, x_RI: Tensor, *weights: Tensor) -> Tensor:
        ctx.save_for_backward(x_RI, *weights)
        return _linear(weights, x_RI.dtype)(x_RI)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, ...]:
        x_RI, *weights = ctx.saved_tensors
        to_x_RI = input_gradient(_linear(weights, x_RI.dtype), gradients[0])
        x_RI, parts = x_RI.float(), gradients[0].split([len(weight) for weight in weights], dim=1)
        return (to_x_RI, *(part.float().T @ x_RI for part in parts))


def _linear(weights: tuple[Tensor, ...] | list[Tensor], dtype: torch.dtype) -> Linear:
    return make_linear(torch.cat([weight.to(dtype) for weight in weights]), None, prepack=False)
