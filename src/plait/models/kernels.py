"""The linear layers of a frozen base, in a form whose bits do not depend on the batch.

What keeps a row's result the same in any batch on CPU (measured; `models.invariance` tests it on the machine at hand):
- products go through oneDNN where it can be had: its kernels add up a row's terms in one order, however many rows there are,
  and a weight laid out beforehand gives the same bits as one laid out in the call. So the engine may prepack and the trainer
  need not. (MKL, which `F.linear` takes in float32, has other kernels below some 20 rows.)
- the thin products of adapters go through `torch.bmm` with weights laid out [in, out], in float32 `INPUT_CHUNK` inputs at a time;
- rows are padded to a multiple of `ROW_MULTIPLE`, so that no call takes the library's path for a few rows;
- a bias is added after the product, since a fused addition rounds otherwise in bfloat16.
"""

from functools import cache
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

ROW_MULTIPLE = 4
"""Rows per call are a multiple of this on CPU; fewer rows take other kernels with other rounding."""

INPUT_CHUNK = 256
"""Terms that MKL is given to add up at a time: with more it splits the sum, otherwise for one thread than for two."""

PACKED_ROWS_HINT = 32
"""Number of rows that oneDNN is told to expect when it lays a weight out."""


class Linear(Protocol):
    out_features: int

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
        return torch.equal(_onednn(x, _lay_out(weight)), x @ weight)
    except (RuntimeError, NotImplementedError):
        return False


def uses_onednn(dtype: torch.dtype, device: torch.device) -> bool:
    return device.type == "cpu" and has_onednn(dtype)


def _lay_out(weight_OI: Tensor) -> Tensor:
    packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight_OI, PACKED_ROWS_HINT)
    return packed


def _onednn(x_RI: Tensor, weight_OI: Tensor) -> Tensor:
    """x W^T; the weight plain or laid out."""
    product: Tensor = torch.ops.mkldnn._linear_pointwise.default(x_RI, weight_OI, None, "none", [], "")
    return product


class _OneDnnProduct(torch.autograd.Function):
    """x W^T through oneDNN, whose operator has no derivative of its own."""

    @staticmethod
    def forward(ctx: Any, x_RI: Tensor, weight_OI: Tensor) -> Tensor:
        ctx.save_for_backward(x_RI if weight_OI.requires_grad else None, weight_OI)
        return _onednn(x_RI, weight_OI)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None]:
        x_RI, weight_OI = ctx.saved_tensors
        need_x, need_weight = ctx.needs_input_grad
        return gradients[0] @ weight_OI if need_x else None, gradients[0].T @ x_RI if need_weight else None


def pad_rows(x_RI: Tensor, multiple: int = ROW_MULTIPLE) -> Tensor:
    """Append zero rows up to the next multiple; a no-op on accelerators and where nothing is missing."""
    missing = -x_RI.shape[0] % multiple
    if missing == 0 or x_RI.device.type != "cpu":
        return x_RI
    return F.pad(x_RI, (0, 0, 0, missing))


def linear_rows(x_RI: Tensor, weight_OI: Tensor) -> Tensor:
    """x W^T, differentiable in both. A row's bits do not depend on the other rows."""
    padded = pad_rows(x_RI)
    if weight_OI.dtype == torch.float32 and uses_onednn(weight_OI.dtype, weight_OI.device):
        y_RO = _OneDnnProduct.apply(padded, weight_OI)  # in bfloat16 F.linear has the same bits, and a derivative
    else:
        y_RO = F.linear(padded, weight_OI)
    return y_RO if padded is x_RI else y_RO[: x_RI.shape[0]]


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


def small_product(x_RI: Tensor, weight_IO: Tensor) -> Tensor:
    """x W with the bits of `grouped_product`; for the thin weights of adapters."""
    padded = pad_rows(x_RI)
    y_RO = grouped_product(padded[None], weight_IO[None])[0]
    return y_RO if padded is x_RI else y_RO[: x_RI.shape[0]]


class PlainLinear:
    """Differentiable in its input."""

    def __init__(self, weight_OI: Tensor, bias_O: Tensor | None = None) -> None:
        self.weight_OI, self.bias_O = weight_OI, bias_O
        self.out_features = weight_OI.shape[0]

    def __call__(self, x_RI: Tensor) -> Tensor:
        y_RO = linear_rows(x_RI, self.weight_OI)
        return y_RO if self.bias_O is None else y_RO + self.bias_O


class PackedLinear:
    """Weight laid out once for oneDNN's inner loops; inference on CPU only."""

    def __init__(self, weight_OI: Tensor, bias_O: Tensor | None = None) -> None:
        self.packed = _lay_out(weight_OI)
        self.bias_O = bias_O
        self.out_features = weight_OI.shape[0]

    def __call__(self, x_RI: Tensor) -> Tensor:
        padded = pad_rows(x_RI)
        y_RO = _onednn(padded, self.packed)
        if padded is not x_RI:
            y_RO = y_RO[: x_RI.shape[0]]
        return y_RO if self.bias_O is None else y_RO + self.bias_O


def make_linear(weight_OI: Tensor, bias_O: Tensor | None, prepack: bool) -> Linear:
    return PackedLinear(weight_OI, bias_O) if prepack else PlainLinear(weight_OI, bias_O)
