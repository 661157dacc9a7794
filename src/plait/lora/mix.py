"""Many adapters of any ranks and target modules in one batch.

Each adapter is fused once to the decoder's sites. For a batch, either all A are stacked, one product is masked row by row and
one product with all B follows ("concat"), or rows are taken adapter by adapter ("segments"). Both give a row the same bits,
and the same as the adapter alone: zeros add nothing, and blocks start at multiples of `RANK_MULTIPLE`.
"""

from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from plait.models.decoder import SITE_MODULES, UNEMBED
from plait.models.kernels import linear_rows
from plait.types.lora import LoraConfig
from plait.types.model import ModelConfig

RANK_MULTIPLE = 16
"""Ranks are padded with zeros to this, so that vector lanes meet the same numbers alone and in a mix."""

MAX_CONCAT_ADAPTERS = 8
"""With more adapters than this the masked products cost more than going adapter by adapter."""

FusedSite = tuple[Tensor, Tensor]
"""A [n * rank, in] and B [out, n * rank] with the scaling inside B, for the n target modules of a site."""


class FusedAdapter:
    """One adapter laid out by (site, layer), in the dtype of the model. Differentiable if its tensors are."""

    def __init__(self, config: LoraConfig, tensors: Mapping[str, Tensor], model: ModelConfig, dtype: torch.dtype) -> None:
        self.sites: dict[tuple[str, int], FusedSite] = {}
        for site, modules in SITE_MODULES.items():
            for layer in range(1 if site == UNEMBED else model.num_layers):
                fused = _fuse(config, tensors, model, site, modules, layer)
                if fused is not None:
                    self.sites[site, layer] = (fused[0].to(dtype), fused[1].to(dtype))

    @property
    def num_bytes(self) -> int:
        return sum(t.numel() * t.element_size() for pair in self.sites.values() for t in pair)


def module_output_sizes(model: ModelConfig) -> dict[str, int]:
    heads, kv_heads = model.num_heads * model.head_dim, model.num_kv_heads * model.head_dim
    return {
        "q_proj": heads, "k_proj": kv_heads, "v_proj": kv_heads, "o_proj": model.hidden_size,
        "gate_proj": model.intermediate_size, "up_proj": model.intermediate_size, "down_proj": model.hidden_size,
        "lm_head": model.vocab_size,
    }  # fmt: skip


def _fuse(
    config: LoraConfig, tensors: Mapping[str, Tensor], model: ModelConfig, site: str, modules: Sequence[str], layer: int
) -> FusedSite | None:
    sizes = module_output_sizes(model)
    padding = -config.rank % RANK_MULTIPLE
    a_parts, b_parts, above, total = [], [], 0, sum(sizes[m] for m in modules)
    for module in modules:
        prefix = "lm_head" if site == UNEMBED else f"layers.{layer}.{module}"
        if module in config.target_modules:
            a_parts.append(F.pad(tensors[prefix + ".A"], (0, 0, 0, padding)))
            b = tensors[prefix + ".B"] * config.scaling
            b_parts.append(F.pad(b, (0, padding, above, total - above - sizes[module])))
        above += sizes[module]
    return (torch.cat(a_parts), torch.cat(b_parts, dim=1)) if a_parts else None


def add_delta(x_RI: Tensor, y_RO: Tensor, fused: FusedSite) -> Tensor:
    """y + B A x for rows of one adapter."""
    return y_RO + linear_rows(linear_rows(x_RI, fused[0]), fused[1])


class SingleLora:
    """All rows belong to one adapter: the trainer's case."""

    def __init__(self, adapter: FusedAdapter) -> None:
        self.adapter = adapter

    def __call__(self, site: str, layer: int, x_RI: Tensor, y_RO: Tensor) -> Tensor:
        fused = self.adapter.sites.get((site, layer))
        return y_RO if fused is None else add_delta(x_RI, y_RO, fused)


class StackedAdapters:
    """The A and B of a fixed list of adapters side by side, made once for as long as the list stays the same."""

    def __init__(self, adapters: Sequence[FusedAdapter]) -> None:
        self.adapters = tuple(adapters)
        keys = {key: None for adapter in adapters for key in adapter.sites}
        self.sites: dict[tuple[str, int], FusedSite] = {}
        self.owners: dict[str, Tensor] = {}
        for site, layer in keys:
            pairs = [(i, a.sites[site, layer]) for i, a in enumerate(self.adapters) if (site, layer) in a.sites]
            self.sites[site, layer] = (torch.cat([p[0] for _, p in pairs]), torch.cat([p[1] for _, p in pairs], dim=1))
            self.owners[site] = torch.cat([torch.full((p[0].shape[0],), i) for i, p in pairs])


class ConcatLora:
    """Masked stacked products for a batch whose row r belongs to adapter `adapter_R[r]` (-1: the base alone)."""

    def __init__(self, stacked: StackedAdapters, adapter_R: Tensor, dtype: torch.dtype) -> None:
        self.stacked = stacked
        device = adapter_R.device
        self.masks = {s: (owner.to(device)[None] == adapter_R[:, None]).to(dtype) for s, owner in stacked.owners.items()}

    def __call__(self, site: str, layer: int, x_RI: Tensor, y_RO: Tensor) -> Tensor:
        fused = self.stacked.sites.get((site, layer))
        if fused is None:
            return y_RO
        return y_RO + linear_rows(linear_rows(x_RI, fused[0]) * self.masks[site], fused[1])


class SegmentLora:
    """Rows taken adapter by adapter, in any order."""

    def __init__(self, adapters: Sequence[FusedAdapter], adapter_R: Tensor) -> None:
        indices = [(adapter_R == i).nonzero()[:, 0] for i in range(len(adapters))]
        self.segments = [(adapter, rows) for adapter, rows in zip(adapters, indices, strict=True) if len(rows)]

    def __call__(self, site: str, layer: int, x_RI: Tensor, y_RO: Tensor) -> Tensor:
        for adapter, rows in self.segments:
            fused = adapter.sites.get((site, layer))
            if fused is not None:
                y_RO = y_RO.index_copy(0, rows, add_delta(x_RI[rows], y_RO[rows], fused))
        return y_RO


def mix_adapters(stacked: StackedAdapters, adapter_R: Tensor, dtype: torch.dtype) -> ConcatLora | SegmentLora | None:
    """The cheaper of the two forms for this batch; None if no row has an adapter."""
    if not stacked.adapters:
        return None
    if len(stacked.adapters) <= MAX_CONCAT_ADAPTERS:
        return ConcatLora(stacked, adapter_R, dtype)
    return SegmentLora(stacked.adapters, adapter_R)
