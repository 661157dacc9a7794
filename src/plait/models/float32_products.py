"""bfloat16 products computed in float32: the same bits, and faster where a processor's bfloat16 unit is the slower one.

AVX512-BF16 without AMX runs at half the speed of float32. Its dot product adds a pair of terms as two fused multiply-adds, the
second of the pair first (Intel SDM, VDPBF16PS), and products of bfloat16 are exact in float32. So oneDNN's float32 product, which
adds up a row's terms in order, gives the bits of its bfloat16 product once the terms of each pair have changed places.
`are_faster` measures both claims on the machine at hand. A weight is converted once and kept (`models.kept_weights`), or in the
call: that costs little for many rows, and nothing is kept.
"""

import time
from collections.abc import Callable
from functools import cache, partial, reduce
from typing import Any

import torch
from torch import Tensor

from plait.models.onednn import onednn

MIN_ROWS = 128
"""With fewer rows the conversion of the weight costs more than it gains."""

MAX_CONVERTED = 1 << 22
"""Weights are converted so many elements at a time: larger pieces of memory come fresh from the system, page by page."""

MIN_GAIN = 1.2
"""float32 must be so much faster: near the border, noise would decide, and gradients are not the same bits both ways."""


def product(x_RI: Tensor, weight_OI: Tensor, kept: Callable[[Tensor], Tensor] | None = None) -> Tensor:
    """x W^T in bfloat16 with the bits of oneDNN's bfloat16 product, for a weight that `fits`. Differentiable in x.

    `kept` multiplies by a copy of the weight that needs no conversion.
    """
    multiplied: Tensor = _Product.apply(x_RI, weight_OI, kept or partial(_converting_product, weight_OI=weight_OI))
    return multiplied


def _converting_product(x_RI: Tensor, weight_OI: Tensor) -> Tensor:
    x_RI, parts = swapped(x_RI), _parts(weight_OI)
    if len(parts) == 1:
        return onednn(x_RI, swapped(weight_OI)).bfloat16()
    y_RO = x_RI.new_empty(len(x_RI), len(weight_OI), dtype=torch.bfloat16)
    for y, part in zip(y_RO.tensor_split(len(parts), dim=1), parts, strict=True):
        y.copy_(onednn(x_RI, swapped(part)))
    return y_RO


class _Product(torch.autograd.Function):
    """The derivative is added up in float32 and rounded once; by oneDNN, since MKL's bits depend on the number of threads."""

    @staticmethod
    def forward(ctx: Any, x_RI: Tensor, weight_OI: Tensor, multiply: Callable[[Tensor], Tensor]) -> Tensor:
        ctx.save_for_backward(weight_OI)
        return multiply(x_RI)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return product_back(gradients[0], ctx.saved_tensors[0]).bfloat16(), None, None


def product_back(gradient_RO: Tensor, weight_OI: Tensor) -> Tensor:
    """g W in float32."""
    parts = _parts(weight_OI)
    gradients_RP = gradient_RO.tensor_split(len(parts), dim=1)
    products = (onednn(g.float(), part.float().T) for g, part in zip(gradients_RP, parts, strict=True))
    return reduce(torch.Tensor.add_, products)


def fits(weight_OI: Tensor) -> bool:
    """Whether products by this weight can be had so; oneDNN has another kernel for a single output, with other rounding."""
    num_outputs, num_inputs = weight_OI.shape
    return weight_OI.dtype == torch.bfloat16 and num_inputs % 2 == 0 and num_outputs > 1


@cache
def are_faster() -> bool:
    """Whether this machine's float32 products have the bits of its bfloat16 products, and are faster. Takes some 0.1 s, once."""
    if not has_same_bits():
        return False
    x, weight = _sample(4 * MIN_ROWS)
    with torch.inference_mode():
        bfloat16_s, float32_s = (least_spent_s(partial(multiply, x, weight)) for multiply in (onednn, product))
    return bfloat16_s > MIN_GAIN * float32_s


def has_same_bits() -> bool:
    """On a sample; `models.invariance` looks at the model at hand."""
    x, weight = _sample(MIN_ROWS)
    with torch.inference_mode():
        return torch.equal(product(x, weight), onednn(x, weight))


def _sample(num_rows: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    x_RI, weight_OI = (torch.randn(rows, 576, generator=generator).bfloat16() for rows in (num_rows, 960))
    return x_RI, weight_OI


def least_spent_s(multiply: Callable[[], Tensor], num_trials: int = 5) -> float:
    """CPU time of this thread, so that what else runs on the machine does not count."""
    spent_s = []
    for _ in range(num_trials):
        start_s = time.thread_time()
        multiply()
        spent_s.append(time.thread_time() - start_s)
    return min(spent_s)


def swapped(x_RI: Tensor) -> Tensor:
    """In float32, each pair of columns in reverse order."""
    pairs = x_RI.unflatten(1, (-1, 2))
    return torch.stack((pairs[..., 1], pairs[..., 0]), dim=-1).flatten(1).float()


def _parts(weight_OI: Tensor) -> tuple[Tensor, ...]:
    """Of nearly equal size, so that none has a single output."""
    return weight_OI.tensor_split(-(-weight_OI.numel() // MAX_CONVERTED))
