"""Float32 copies of bfloat16 weights, kept: `models.float32_products` without converting the weight in every call.

A copy takes twice the weight's bytes. So copies come out of a budget, in the order in which layers are made; weights that find
none left are converted in the call, or multiplied in bfloat16. No bit depends on it.
"""

from functools import cache, partial

import torch
from torch import Tensor

from plait.models import float32_products
from plait.models.onednn import lay_out, onednn

FLOAT32_BYTES = 2 << 30
"""Budget of a decoder. All weights of SmolLM2-135M take a quarter of it."""

BYTES_PER_WEIGHT = 4

ROW_NUMBERS = (16, 32, 64, 128)
"""Numbers of rows from which on float32 may be the faster; with fewer the bytes of the weight decide, which are twice as many."""


class Budget:
    """Bytes that are left for copies."""

    def __init__(self, num_bytes: int) -> None:
        self.left_bytes = num_bytes

    def take(self, num_bytes: int) -> bool:
        """Whether so many were left; then they are not any more."""
        if num_bytes > self.left_bytes:
            return False
        self.left_bytes -= num_bytes
        return True


class KeptWeight:
    """W [O, I], for products x W^T of `min_rows` rows and more."""

    def __init__(self, weight_OI: Tensor, min_rows: int) -> None:
        self.min_rows = min_rows
        self.packed = lay_out(float32_products.swapped(weight_OI))

    def product(self, x_RI: Tensor) -> Tensor:
        """x W^T in bfloat16, with the bits of the bfloat16 product. Not differentiable."""
        return onednn(float32_products.swapped(x_RI), self.packed).bfloat16()


def keep(weight_OI: Tensor, budget: Budget | None) -> KeptWeight | None:
    """A copy, where float32 is the faster on this machine and the budget has room for it."""
    if budget is None or weight_OI.device.type != "cpu" or not float32_products.fits(weight_OI):
        return None
    if not float32_products.are_faster() or not budget.take(BYTES_PER_WEIGHT * weight_OI.numel()):
        return None
    return KeptWeight(weight_OI, least_rows())


@cache
def least_rows() -> int:
    """From how many rows on float32 is the faster with both weights laid out: measured, in some 0.1 s, once."""
    slower = [num_rows for num_rows in ROW_NUMBERS if not _is_faster(num_rows)]
    return next((rows for rows in ROW_NUMBERS if rows > max(slower, default=0)), float32_products.MIN_ROWS)


def _is_faster(num_rows: int) -> bool:
    generator = torch.Generator().manual_seed(0)
    x_RI, weight_OI = (torch.randn(rows, 576, generator=generator).bfloat16() for rows in (num_rows, 3072))
    kept, packed = KeptWeight(weight_OI, num_rows), lay_out(weight_OI)
    with torch.inference_mode():
        bfloat16_s = float32_products.least_spent_s(partial(onednn, x_RI, packed))
        float32_s = float32_products.least_spent_s(partial(kept.product, x_RI))
    return bfloat16_s > float32_products.MIN_GAIN * float32_s
