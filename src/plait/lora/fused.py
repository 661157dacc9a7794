"""One adapter laid out for the decoder: by site, in the dtype of the model, with the scaling inside B."""

from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from plait.lora.site import FusedSite
from plait.models.decoder import SITE_MODULES, UNEMBED
from plait.types.lora import LoraConfig
from plait.types.model import ModelConfig

RANK_MULTIPLE = 16
"""Ranks are padded with zeros to this, so that vector lanes are full."""


class FusedAdapter:
    """One adapter laid out by (site, layer), in the dtype of the model. Differentiable if its tensors are."""

    def __init__(self, config: LoraConfig, tensors: Mapping[str, Tensor], model: ModelConfig, dtype: torch.dtype) -> None:
        self.sites: dict[tuple[str, int], FusedSite] = {}
        for site, modules in SITE_MODULES.items():
            if set(modules) & set(config.target_modules):
                for layer in range(1 if site == UNEMBED else model.num_layers):
                    self.sites[site, layer] = _fuse(config, tensors, model, modules, layer, dtype)

    @property
    def num_bytes(self) -> int:
        return sum(site.num_bytes for site in self.sites.values())


def module_output_sizes(model: ModelConfig) -> dict[str, int]:
    heads, kv_heads = model.num_heads * model.head_dim, model.num_kv_heads * model.head_dim
    return {
        "q_proj": heads, "k_proj": kv_heads, "v_proj": kv_heads, "o_proj": model.hidden_size,
        "gate_proj": model.intermediate_size, "up_proj": model.intermediate_size, "down_proj": model.hidden_size,
        "lm_head": model.vocab_size,
    }  # fmt: skip


def _fuse(
    config: LoraConfig, tensors: Mapping[str, Tensor], model: ModelConfig, modules: Sequence[str], layer: int, dtype: torch.dtype
) -> FusedSite:
    sizes, padding = module_output_sizes(model), -config.rank % RANK_MULTIPLE
    targets = [place for place, module in enumerate(modules) if module in config.target_modules]
    a_parts, b_parts = [], []
    for place in targets:
        prefix = modules[place] if modules[place] == "lm_head" else f"layers.{layer}.{modules[place]}"
        a_parts.append(F.pad(tensors[prefix + ".A"].T, (0, padding)))
        b_parts.append(F.pad((tensors[prefix + ".B"] * config.scaling).T, (0, 0, 0, padding)).to(dtype).contiguous())
    return FusedSite(torch.cat(a_parts, dim=1).to(dtype), tuple(b_parts), tuple(targets), tuple(sizes[m] for m in modules))
