"""The linear layers of a frozen base, in a form whose bits do not depend on the batch.

What keeps a row's result the same in any batch on CPU (measured; `models.invariance` tests it on the machine at hand):
- in bfloat16, and in float32 where outputs are many, products go through oneDNN where it can be had: its kernels add up a row's
  terms in one order, however many rows there are, and a weight laid out beforehand gives the same bits as one laid out in the
  call. So the engine may prepack and the trainer need not;
- other float32 products, and those of adapters, go through `torch.bmm` with weights laid out [in, out], `INPUT_CHUNK` inputs at a
  time. (`F.linear` in float32 has other kernels below some 20 rows.)
- rows are padded to a multiple of `ROW_MULTIPLE`, so that no call takes the library's path for a few rows;
- a bias is added after the product, since a fused addition rounds otherwise in bfloat16.
"""

from collections.abc import Callable
from functools import cache, partial
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from plait.models import float32_products
from plait.models.kept_weights import Budget, KeptWeight, keep
from plait.models.onednn import lay_out, onednn

ROW_MULTIPLE = 4
"""Rows per call are a multiple of this on CPU; fewer rows take other kernels with other rounding."""

INPUT_CHUNK = 256
"""Terms that MKL is given to add up at a time: with more it splits the sum, otherwise for one thread than for two."""

CHUNKED_OUTPUTS = 2
"""In float32, weights with up to so many outputs for each input go chunk by chunk through MKL: at 32 rows and more that is 10 to
20 % faster than oneDNN, and the error is half that of oneDNN's one long sum. Wider weights are faster in oneDNN."""


class Linear(Protocol):
    out_features: int

    @property
    def num_bytes(self) -> int:
        """Of all forms of the weight that are kept."""
        ...

    def __call__(self, x_RI: Tensor) -> Tensor: ...


@cache
def has_onednn(dtype: torch.dtype) -> bool:
    """Whether oneDNN multiplies in this dtype here. It is asked by a trial: builds and processors differ in what they refuse."""
    if dtype not in (torch.bfloat16, torch.float32) or not torch.backends.mkldnn.is_available():
        return False
    if not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        return False
    x, weight = torch.ones(ROW_MULTIPLE, 16, dtype=dtype), torch.ones(16, 16, dtype=dtype)
    try:
        return torch.equal(onednn(x, lay_out(weight)), x @ weight)
    except (RuntimeError, NotImplementedError):
        return False


def uses_onednn(dtype: torch.dtype, device: torch.device) -> bool:
    return device.type == "cpu" and has_onednn(dtype)


class _FrozenProduct(torch.autograd.Function):
    """x W for a frozen W, however it is computed; its derivative is a plain product."""

    @staticmethod
    def forward(ctx: Any, x_RI: Tensor, weight_IO: Tensor, multiply: Callable[[Tensor], Tensor]) -> Tensor:
        ctx.save_for_backward(weight_IO)
        return multiply(x_RI)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return gradients[0] @ ctx.saved_tensors[0].T, None, None


def pad_rows(x_RI: Tensor, multiple: int = ROW_MULTIPLE) -> Tensor:
    """Append zero rows up to the next multiple; a no-op on accelerators and where nothing is missing."""
    missing = -x_RI.shape[0] % multiple
    if missing == 0 or x_RI.device.type != "cpu":
        return x_RI
    return F.pad(x_RI, (0, 0, 0, missing))


def grouped_product(x_NRI: Tensor, weight_NIO: Tensor) -> Tensor:
    """x W for N weights at once, [N, R, O]; R is 2 or more. A row's bits depend on nothing but the row and its weight."""
    num_inputs = x_NRI.shape[-1]
    if num_inputs <= INPUT_CHUNK or x_NRI.dtype != torch.float32 or x_NRI.device.type != "cpu":
        return torch.bmm(x_NRI, weight_NIO)
    total = torch.bmm(x_NRI[..., :INPUT_CHUNK], weight_NIO[:, :INPUT_CHUNK])
    for start in range(INPUT_CHUNK, num_inputs, INPUT_CHUNK):
        end = start + INPUT_CHUNK
        total = torch.baddbmm(total, x_NRI[..., start:end], weight_NIO[:, start:end])
    return total


def product(x_RI: Tensor, weight_IO: Tensor) -> Tensor:
    """x W for one weight, any number of rows, with the bits of `grouped_product`."""
    return _without_padding(lambda x: grouped_product(x[None], weight_IO[None])[0], x_RI)


def _without_padding(multiply: Callable[[Tensor], Tensor], x_RI: Tensor) -> Tensor:
    """Pads rows, multiplies, and takes the padding off again; a slice costs a copy on the way back, so none without need."""
    padded = pad_rows(x_RI)
    y_RO = multiply(padded)
    return y_RO if padded is x_RI else y_RO[: x_RI.shape[0]]


class PlainLinear:
    """Differentiable in its input. In bfloat16 `F.linear` has the bits of a weight laid out beforehand, and so has
    `float32_products` for many rows, with a kept copy or without."""

    def __init__(self, weight_OI: Tensor, bias_O: Tensor | None = None, budget: Budget | None = None) -> None:
        self.weight_OI, self.bias_O = weight_OI, bias_O
        self.out_features = weight_OI.shape[0]
        self._has_onednn = uses_onednn(weight_OI.dtype, weight_OI.device)
        self.kept = keep(weight_OI, budget)

    @property
    def num_bytes(self) -> int:
        return _num_bytes(self.weight_OI, self.bias_O, self.kept)

    def __call__(self, x_RI: Tensor) -> Tensor:
        y_RO = _without_padding(self._multiply, x_RI)
        return y_RO if self.bias_O is None else y_RO + self.bias_O

    def _multiply(self, x_RI: Tensor) -> Tensor:
        if not self._has_onednn:
            return F.linear(x_RI, self.weight_OI)
        if self.wants_float32(x_RI):
            return float32_products.product(x_RI, self.weight_OI, self.kept.product if self.kept is not None else None)
        if self.weight_OI.dtype == torch.bfloat16:
            return F.linear(x_RI, self.weight_OI)
        product: Tensor = _FrozenProduct.apply(x_RI, self.weight_OI.T, lambda x: onednn(x, self.weight_OI))
        return product

    def wants_float32(self, x_RI: Tensor) -> bool:
        """Whether a product of so many rows is computed in float32."""
        return x_RI.shape[0] >= float32_products.MIN_ROWS and self.is_faster_in_float32

    @property
    def is_faster_in_float32(self) -> bool:
        return self._has_onednn and float32_products.fits(self.weight_OI) and float32_products.are_faster()


class ChunkedLinear:
    """A float32 weight with many inputs and few outputs, multiplied `INPUT_CHUNK` inputs at a time. Differentiable in its input."""

    def __init__(self, weight_OI: Tensor, bias_O: Tensor | None = None) -> None:
        self.weight_IO, self.bias_O = weight_OI.T.contiguous(), bias_O
        self.out_features = weight_OI.shape[0]

    @property
    def num_bytes(self) -> int:
        return _num_bytes(self.weight_IO, self.bias_O)

    def __call__(self, x_RI: Tensor) -> Tensor:
        y_RO = _without_padding(self._multiply, x_RI)
        return y_RO if self.bias_O is None else y_RO + self.bias_O

    def _multiply(self, x_RI: Tensor) -> Tensor:
        product: Tensor = _FrozenProduct.apply(x_RI, self.weight_IO, lambda x: grouped_product(x[None], self.weight_IO[None])[0])
        return product


class PackedLinear:
    """Weight laid out once for oneDNN's inner loops; inference on CPU only. Many rows take the copy in float32, if there is one."""

    def __init__(self, weight_OI: Tensor, bias_O: Tensor | None = None, budget: Budget | None = None) -> None:
        self.packed = lay_out(weight_OI)
        self.bias_O = bias_O
        self.out_features = weight_OI.shape[0]
        self.kept = keep(weight_OI, budget)

    @property
    def num_bytes(self) -> int:
        return _num_bytes(self.packed, self.bias_O, self.kept)

    def __call__(self, x_RI: Tensor) -> Tensor:
        y_RO = _without_padding(self._multiply, x_RI)
        return y_RO if self.bias_O is None else y_RO + self.bias_O

    def _multiply(self, x_RI: Tensor) -> Tensor:
        if self.kept is not None and x_RI.shape[0] >= self.kept.min_rows:
            return self.kept.product(x_RI)
        return onednn(x_RI, self.packed)


def _num_bytes(weight: Tensor, bias_O: Tensor | None, kept: KeptWeight | None = None) -> int:
    """A tensor laid out for oneDNN has no `nbytes`."""
    forms = [weight, *([] if bias_O is None else [bias_O]), *([] if kept is None else [kept.packed])]
    return sum(form.numel() * form.element_size() for form in forms)


def make_linear(weight_OI: Tensor, bias_O: Tensor | None, prepack: bool, budget: Budget | None = None) -> Linear:
    """`prepack` is for inference; it changes no bit. `budget` is for copies in another dtype, without any if it is None."""
    num_outputs, num_inputs = weight_OI.shape
    if weight_OI.dtype == torch.float32 and weight_OI.device.type == "cpu" and num_outputs <= CHUNKED_OUTPUTS * num_inputs:
        return ChunkedLinear(weight_OI, bias_O)
    return PackedLinear(weight_OI, bias_O, budget) if prepack else PlainLinear(weight_OI, bias_O, budget)


def input_gradient(linear: Linear, gradient_RO: Tensor) -> Tensor:
    """g W for a linear of the trainer's, with the bits that autograd gives a call of it with as many rows."""
    if isinstance(linear, ChunkedLinear):
        return gradient_RO @ linear.weight_IO.T
    assert isinstance(linear, PlainLinear), "the weight of an engine's linear is only laid out for its way forwards"
    if linear.wants_float32(gradient_RO):
        return float32_products.product_back(gradient_RO, linear.weight_OI).bfloat16()
    return gradient_RO @ linear.weight_OI


def back_product(linear: Linear) -> Callable[[Tensor], Tensor]:
    """g -> g W for a linear of the trainer's and gradients g [R, O] in float32; the weight is converted once, here."""
    if isinstance(linear, ChunkedLinear):
        return partial(torch.matmul, other=linear.weight_IO.T)
    assert isinstance(linear, PlainLinear), "the weight of an engine's linear is only laid out for its way forwards"
    weight_OI = linear.weight_OI
    if linear.is_faster_in_float32:
        return partial(onednn, weight_OI=weight_OI.float().T)
    return lambda gradient_RO: gradient_RO.to(weight_OI.dtype) @ weight_OI
