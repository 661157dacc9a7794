"""bfloat16 products computed in float32: the same bits, and faster where a processor's bfloat16 unit is the slower one.

AVX512-BF16 without AMX runs at half the speed of float32. Its dot product adds a pair of terms as two fused multiply-adds, the
second of the pair first (Intel SDM, VDPBF16PS), and products of bfloat16 are exact in float32. So oneDNN's float32 product, which
adds up a row's terms in order, gives the bits of its bfloat16 product once the terms of each pair have changed places.
`are_faster` measures both claims on the machine at hand. Weights are converted in the call: that costs little for many rows, and
nothing is kept.
"""

import time
from collections.abc import Callable
from functools import cache, partial, reduce
from typing import Any

import torch
from torch import Tensor

MIN_ROWS = 128
"""With fewer rows the conversion of the weight costs more than it gains."""

MAX_CONVERTED = 1 << 22
"""Weights are converted so many elements at a time: larger pieces of memory come fresh from the system, page by page."""

MIN_GAIN = 1.2
"""float32 must be so much faster: near the border, noise would decide, and gradients are not the same bits both ways."""


def product(x_RI: Tensor, weight_OI: Tensor) -> Tensor:
    """x W^T in bfloat16 with the bits of oneDNN's bfloat16 product, for an even number of inputs. Differentiable in x.

    Weights of a single output are none of it: oneDNN has another kernel for them, with other rounding.
    """
    multiplied: Tensor = _Product.apply(x_RI, weight_OI)
    return multiplied


class _Product(torch.autograd.Function):
    """The derivative is added up in float32 and rounded once; by oneDNN, since MKL's bits depend on the number of threads."""

    @staticmethod
    def forward(ctx: Any, x_RI: Tensor, weight_OI: Tensor) -> Tensor:
        ctx.save_for_backward(weight_OI)
        x_RI, parts = _swapped(x_RI), _parts(weight_OI)
        if len(parts) == 1:
            return _onednn(x_RI, _swapped(weight_OI)).bfloat16()
        y_RO = x_RI.new_empty(len(x_RI), len(weight_OI), dtype=torch.bfloat16)
        for y, part in zip(y_RO.tensor_split(len(parts), dim=1), parts, strict=True):
            y.copy_(_onednn(x_RI, _swapped(part)))
        return y_RO

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        parts = _parts(ctx.saved_tensors[0])
        gradients_RP = gradients[0].tensor_split(len(parts), dim=1)
        products = (_onednn(g.float(), part.float().T) for g, part in zip(gradients_RP, parts, strict=True))
        return reduce(torch.Tensor.add_, products).bfloat16(), None


@cache
def are_faster() -> bool:
    """Whether this machine's float32 products have the bits of its bfloat16 products, and are faster. Takes some 0.1 s, once."""
    if not has_same_bits():
        return False
    x, weight = _sample(4 * MIN_ROWS)
    with torch.inference_mode():
        bfloat16_s, float32_s = (_least_spent_s(partial(multiply, x, weight)) for multiply in (_onednn, product))
    return bfloat16_s > MIN_GAIN * float32_s


def has_same_bits() -> bool:
    """On a sample; `models.invariance` looks at the model at hand."""
    x, weight = _sample(MIN_ROWS)
    with torch.inference_mode():
        return torch.equal(product(x, weight), _onednn(x, weight))


def _sample(num_rows: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    x_RI, weight_OI = (torch.randn(rows, 576, generator=generator).bfloat16() for rows in (num_rows, 960))
    return x_RI, weight_OI


def _least_spent_s(multiply: Callable[[], Tensor], num_trials: int = 5) -> float:
    """CPU time of this thread, so that what else runs on the machine does not count."""
    spent_s = []
    for _ in range(num_trials):
        start_s = time.thread_time()
        multiply()
        spent_s.append(time.thread_time() - start_s)
    return min(spent_s)


def _onednn(x_RI: Tensor, weight_OI: Tensor) -> Tensor:
    multiplied: Tensor = torch.ops.mkldnn._linear_pointwise.default(x_RI, weight_OI, None, "none", [], "")
    return multiplied


def _swapped(x_RI: Tensor) -> Tensor:
    """In float32, each pair of columns in reverse order."""
    pairs = x_RI.unflatten(1, (-1, 2))
    return torch.stack((pairs[..., 1], pairs[..., 0]), dim=-1).flatten(1).float()


def _parts(weight_OI: Tensor) -> tuple[Tensor, ...]:
    """Of nearly equal size, so that none has a single output."""
    return weight_OI.tensor_split(-(-weight_OI.numel() // MAX_CONVERTED))
