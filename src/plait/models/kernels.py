"""The linear layers of a frozen base, in a form whose bits do not depend on the batch.

What keeps a row's result the same in any batch on CPU (measured; `models.invariance` tests it on the machine at hand):
- rows are padded to a multiple of `ROW_MULTIPLE`, so that no call takes the library's path for a few rows;
- a bias is added after the product, since a fused addition rounds otherwise;
- a prepacked weight gives the bits of `F.linear` in bfloat16, so the engine may prepack and the trainer need not.
"""

from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

ROW_MULTIPLE = 4
"""Rows per call are a multiple of this on CPU; fewer rows take other kernels with other rounding."""

PACKED_ROWS_HINT = 32
"""Number of rows that oneDNN is told to expect when it lays a weight out."""


class Linear(Protocol):
    out_features: int

    def __call__(self, x_RI: Tensor) -> Tensor: ...


def pad_rows(x_RI: Tensor, multiple: int = ROW_MULTIPLE) -> Tensor:
    """Append zero rows up to the next multiple; a no-op on accelerators and where nothing is missing."""
    missing = -x_RI.shape[0] % multiple
    if missing == 0 or x_RI.device.type != "cpu":
        return x_RI
    return F.pad(x_RI, (0, 0, 0, missing))


def linear_rows(x_RI: Tensor, weight_OI: Tensor) -> Tensor:
    """x W^T with padded rows."""
    return F.linear(pad_rows(x_RI), weight_OI)[: x_RI.shape[0]]


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
        self.packed = torch.ops.mkldnn._reorder_linear_weight(weight_OI, PACKED_ROWS_HINT)
        self.bias_O = bias_O
        self.out_features = weight_OI.shape[0]

    def __call__(self, x_RI: Tensor) -> Tensor:
        padded = pad_rows(x_RI)
        y_RO = torch.ops.mkldnn._linear_pointwise(padded, self.packed, None, "none", [], "")[: x_RI.shape[0]]
        return y_RO if self.bias_O is None else y_RO + self.bias_O


def can_prepack(dtype: torch.dtype, device: torch.device) -> bool:
    """Prepacked float32 differs from `F.linear` in the last bits, so only bfloat16 is packed."""
    return dtype == torch.bfloat16 and device.type == "cpu" and torch.backends.mkldnn.is_available()


def make_linear(weight_OI: Tensor, bias_O: Tensor | None, prepack: bool) -> Linear:
    return PackedLinear(weight_OI, bias_O) if prepack else PlainLinear(weight_OI, bias_O)
