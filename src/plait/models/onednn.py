"""oneDNN's product with a weight laid out beforehand or in the call; both have the same bits."""

import torch
from torch import Tensor

PACKED_ROWS_HINT = 32
"""Number of rows that oneDNN is told to expect when it lays a weight out."""


def onednn(x_RI: Tensor, weight_OI: Tensor) -> Tensor:
    """x W^T in the dtype of both; the weight plain or laid out."""
    product: Tensor = torch.ops.mkldnn._linear_pointwise.default(x_RI, weight_OI, None, "none", [], "")
    return product


def lay_out(weight_OI: Tensor) -> Tensor:
    """The weight in the order in which oneDNN's inner loops read it; only `onednn` takes it."""
    packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight_OI, PACKED_ROWS_HINT)
    return packed
