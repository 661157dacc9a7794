"""The weights of a fixed list of adapters, stacked once for as long as the list stays the same."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from plait.lora.fused import FusedAdapter
from plait.lora.site import FusedSite


@dataclass(frozen=True, slots=True)
class SiteStack:
    """How a site is stacked. `members` are the adapters that have it. A site's output is cut into pieces of one width, such that
    each belongs to one module: piece p to `piece_modules[p]`."""

    members: tuple[int, ...]
    num_modules: int
    piece_modules: tuple[int, ...]
    rank: int


class StackedAdapters:
    """`weights[site, layer]` are A [N, in, modules * rank] and B [N * pieces, rank, width] of the N members of `sites[site]`."""

    def __init__(self, adapters: Sequence[FusedAdapter]) -> None:
        self.adapters = tuple(adapters)
        self.sites: dict[str, SiteStack] = {}
        self.weights: dict[tuple[str, int], tuple[Tensor, Tensor]] = {}
        for site, layer in {key: None for adapter in adapters for key in adapter.sites}:
            members = [i for i, adapter in enumerate(self.adapters) if (site, layer) in adapter.sites]
            fused = [self.adapters[i].sites[site, layer] for i in members]
            stack = self.sites.setdefault(site, _site_stack(members, fused))
            self.weights[site, layer] = _stack(stack, fused)


def _site_stack(members: Sequence[int], fused: Sequence[FusedSite]) -> SiteStack:
    widths = fused[0].widths
    width = math.gcd(*widths)
    piece_modules = tuple(module for module, outputs in enumerate(widths) for _ in range(outputs // width))
    return SiteStack(tuple(members), len(widths), piece_modules, max(site.rank for site in fused))


def _stack(stack: SiteStack, fused: Sequence[FusedSite]) -> tuple[Tensor, Tensor]:
    """Ranks are filled up with zeros, and so are modules that an adapter does not target."""
    n, rank, pieces = len(fused), stack.rank, len(stack.piece_modules)
    num_inputs, width = fused[0].a_IJ.shape[0], sum(fused[0].widths) // pieces
    a = fused[0].a_IJ.new_zeros(n, num_inputs, stack.num_modules, rank)
    b = fused[0].a_IJ.new_zeros(n, pieces, rank, width)
    for i, site in enumerate(fused):
        for module, a_part, b_part in zip(site.modules, site.a_IJ.split(site.rank, dim=1), site.b_RO, strict=True):
            first = stack.piece_modules.index(module)
            a[i, :, module, : site.rank] = a_part
            parts = b_part.view(site.rank, -1, width).transpose(0, 1)
            b[i, first : first + len(parts), : site.rank] = parts
    return a.view(n, num_inputs, -1), b.view(n * pieces, rank, width)
