"""What one adapter adds to one site of the decoder: the outputs of one or more modules that share an input, side by side.

All forms go through `models.kernels.grouped_product`, so that a row has the same bits alone and in a mix.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from plait.models.kernels import product


@dataclass(frozen=True, slots=True)
class FusedSite:
    """`a_IJ` holds the A of the target modules side by side, J = targets x rank; `b_RO` a [rank, out] for each of them.

    `modules` are the targets' places among the site's modules, `widths` the outputs of all of these. B carries the scaling.
    """

    a_IJ: Tensor
    b_RO: tuple[Tensor, ...]
    modules: tuple[int, ...]
    widths: tuple[int, ...]

    @property
    def rank(self) -> int:
        return self.b_RO[0].shape[0]

    @property
    def columns(self) -> list[slice]:
        """Where each target module's outputs stand among the site's."""
        starts = [sum(self.widths[:module]) for module in self.modules]
        return [slice(start, start + self.widths[module]) for start, module in zip(starts, self.modules, strict=True)]

    @property
    def num_bytes(self) -> int:
        return sum(t.numel() * t.element_size() for t in (self.a_IJ, *self.b_RO))


def add_delta(x_RI: Tensor, y_RO: Tensor, site: FusedSite) -> Tensor:
    """y + x A B: each row with the adapter's share. Differentiable."""
    added: Tensor = _AddDelta.apply(x_RI, y_RO, site.columns, site.a_IJ, *site.b_RO)
    return added


def add_delta_(x_RI: Tensor, y_RO: Tensor, site: FusedSite) -> Tensor:
    """The same in place, without derivatives."""
    return _add(y_RO, y_RO, product(x_RI, site.a_IJ), site.columns, site.b_RO)


def _add(out_RO: Tensor, y_RO: Tensor, h_RJ: Tensor, columns: list[slice], b_RO: tuple[Tensor, ...]) -> Tensor:
    rank = b_RO[0].shape[0]
    for index, (column, b) in enumerate(zip(columns, b_RO, strict=True)):
        delta = product(h_RJ[:, index * rank : (index + 1) * rank], b)
        torch.add(y_RO[:, column], delta, out=out_RO[:, column])
    return out_RO


class _AddDelta(torch.autograd.Function):
    """One node for the whole site: adds straight into the columns, where autograd's own would build full-width parts."""

    @staticmethod
    def forward(ctx: Any, x_RI: Tensor, y_RO: Tensor, columns: list[slice], a_IJ: Tensor, *b_RO: Tensor) -> Tensor:
        h_RJ = product(x_RI, a_IJ)
        ctx.save_for_backward(x_RI, h_RJ, a_IJ, *b_RO)
        ctx.columns = columns
        is_whole = sum(column.stop - column.start for column in columns) == y_RO.shape[1]
        return _add(torch.empty_like(y_RO) if is_whole else y_RO.clone(), y_RO, h_RJ, columns, b_RO)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        g_RO, (x_RI, h_RJ, a_IJ, *b_RO) = gradients[0], ctx.saved_tensors
        parts = [g_RO[:, column] for column in ctx.columns]
        gh_RJ = torch.cat([g @ b.T for g, b in zip(parts, b_RO, strict=True)], dim=1)
        need_x, need_y, _, need_a, *need_b = ctx.needs_input_grad
        gb = [h.T @ g if need else None for h, g, need in zip(h_RJ.split(b_RO[0].shape[0], 1), parts, need_b, strict=True)]
        return gh_RJ @ a_IJ.T if need_x else None, g_RO if need_y else None, None, x_RI.T @ gh_RJ if need_a else None, *gb
