"""The decoder with weights that are trained: float32 masters, computed with in the model's dtype.

- A forward pass has the bits of `Decoder` with the masters rounded to that dtype, so it agrees with the engine that samples.
- Gradients of matrices are added up in float32 and never rounded; those of norms and biases are rounded once a pass.
- Products use the masters as they were at the latest `refresh`. No copy of a weight in another dtype is kept besides.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from plait.models.decoder import Decoder
from plait.models.kept_weights import Budget
from plait.models.kernels import Linear
from plait.types.model import ModelConfig


class TrainedDecoder(Decoder):
    """`masters` are leaves by the names of `models.tensor_names`; whoever changes them calls `refresh`. Differentiable in them."""

    trains_weights = True

    def __init__(self, config: ModelConfig, masters: Mapping[str, Tensor], dtype: torch.dtype) -> None:
        self.masters = masters
        super().__init__(config, _computed(masters, dtype), float32_bytes=0)

    def refresh(self) -> None:
        """Compute with the masters as they are now. Passes that are under way must have ended."""
        self.lay_out(_computed(self.masters, self.dtype))

    def _make_linear(self, weights: Mapping[str, Tensor], names: Sequence[str], budget: Budget) -> Linear:
        return _TrainedLinear(super()._make_linear(weights, names, budget), [self.masters[name] for name in names])

    def _embed(self, tokens_R: Tensor) -> Tensor:
        x_RE = super()._embed(tokens_R)
        if not torch.is_grad_enabled():
            return x_RE
        embedded: Tensor = EmbeddingGradient.apply(x_RE, tokens_R, self.masters["embed_tokens"])
        return embedded


def _computed(masters: Mapping[str, Tensor], dtype: torch.dtype) -> dict[str, Tensor]:
    """Matrices apart from autograd, which has nodes of its own for them; vectors within it."""
    return {name: (tensor if tensor.ndim == 1 else tensor.detach()).to(dtype) for name, tensor in masters.items()}


class _TrainedLinear:
    """A frozen linear's product, and the gradients of the weights that it was made of."""

    def __init__(self, product: Linear, masters: Sequence[Tensor]) -> None:
        self.product, self.masters = product, masters
        self.out_features, self.num_bytes = product.out_features, product.num_bytes

    def __call__(self, x_RI: Tensor) -> Tensor:
        y_RO = self.product(x_RI)
        if not torch.is_grad_enabled():
            return y_RO
        passed_on: Tensor = _WeightGradient.apply(y_RO, x_RI.detach(), *self.masters)
        return passed_on


class _WeightGradient(torch.autograd.Function):
    """y as it is; backwards also dW = g^T x in float32, for each of the weights side by side in y's columns."""

    @staticmethod
    def forward(ctx: Any, y_RO: Tensor, x_RI: Tensor, *masters: Tensor) -> Tensor:
        ctx.save_for_backward(x_RI)
        ctx.sizes = [len(master) for master in masters]
        return y_RO.view_as(y_RO)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x_RI = ctx.saved_tensors[0].float()
        parts = (gradient.float().T @ x_RI for gradient in gradients[0].split(ctx.sizes, dim=1))
        return gradients[0], None, *parts


class EmbeddingGradient(torch.autograd.Function):
    """x as it is; backwards the gradient of the embedding in float32."""

    @staticmethod
    def forward(ctx: Any, x_RE: Tensor, tokens_R: Tensor, master_VE: Tensor) -> Tensor:
        ctx.save_for_backward(tokens_R)
        ctx.shape = master_VE.shape
        return x_RE.view_as(x_RE)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, None, Tensor]:
        (tokens_R,) = ctx.saved_tensors
        gradient_VE = gradients[0].new_zeros(ctx.shape, dtype=torch.float32)
        return None, None, gradient_VE.index_add_(0, tokens_R, gradients[0].float())
