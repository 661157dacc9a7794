"""The decoder as modules whose parameters FSDP2 may shard: `models.decoder` does the arithmetic, here are only the parameters.

- One unit for each layer, gathered for that layer's turn alone, and the root with embedding, final norm and unembedding.
- Parameters have the names and shapes of `models.tensor_names`; where FSDP2 sharded them, they are DTensors.
- A forward call starts at the root's `forward`, and ends there: FSDP gathers and frees parameters around it.
"""

from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from plait.models.attention import Attention
from plait.models.decoder import DOWN, GATE_UP, OUTPUT, QKV, SITE_MODULES, Decoder, LoraDelta
from plait.models.logprobs import token_logprobs
from plait.models.rotary import Rotary
from plait.models.trained_decoder import EmbeddingGradient
from plait.training.fsdp_product import TrainedLinear
from plait.training.head import CHUNK_ROWS
from plait.types.model import ModelConfig

SITES = (QKV, OUTPUT, GATE_UP, DOWN)


class _Parameters(nn.Module):
    """Parameters by names that may have dots in them, which torch's own names may not."""

    def __init__(self, weights: Mapping[str, Tensor | None]) -> None:
        super().__init__()
        for name, weight in weights.items():
            self.register_parameter(_attribute(name), None if weight is None else nn.Parameter(weight))

    def get(self, name: str) -> Tensor | None:
        return self._parameters.get(_attribute(name))

    def need(self, name: str) -> Tensor:
        parameter = self._parameters[_attribute(name)]
        assert parameter is not None
        return parameter


class LayerModule(_Parameters):
    """One layer; what `models.decoder` asks of a layer's weights is made of the parameters that are gathered at the time."""

    input_norm: Tensor
    post_attention_norm: Tensor
    q_norm: Tensor | None
    k_norm: Tensor | None

    def __init__(self, decoder: "_View", index: int, weights: Mapping[str, Tensor]) -> None:
        super().__init__({"q_norm": None, "k_norm": None, **weights})
        self._run, self._index = decoder.run_layer, index

    def forward(self, x_RE: Tensor, cos: Tensor, sin: Tensor, attention: Attention, checkpointed: bool) -> Tensor:
        if checkpointed:
            y_RE: Tensor = checkpoint(self._run, self._index, x_RE, cos, sin, attention, use_reentrant=False)
            return y_RE
        return self._run(self._index, x_RE, cos, sin, attention)

    @property
    def linear(self) -> dict[str, TrainedLinear]:
        return {site: self._linear(SITE_MODULES[site]) for site in SITES}

    def _linear(self, modules: Sequence[str]) -> TrainedLinear:
        biases = (self.get(f"{module}.bias") for module in modules)
        return TrainedLinear(tuple(self.need(module) for module in modules), tuple(bias for bias in biases if bias is not None))


class _View(Decoder):
    """The decoder's arithmetic over modules in place of frozen weights."""

    def __init__(self, config: ModelConfig, root: "DecoderModule", dtype: torch.dtype, device: torch.device) -> None:
        self.config, self.dtype, self.device, self._root = config, dtype, device, root
        self.rotary = Rotary(config, device)

    @property
    def embedding_VE(self) -> Tensor:  # type: ignore[override]
        return self._root.need("embed_tokens")

    @property
    def final_norm(self) -> Tensor:  # type: ignore[override]
        return self._root.need("norm")

    @property
    def layers(self) -> nn.ModuleList:  # type: ignore[override]
        return self._root.layers

    @property
    def unembedding(self) -> TrainedLinear:  # type: ignore[override]
        weight = self._root.get("lm_head")
        return TrainedLinear((self.embedding_VE if weight is None else weight,))

    def run_layer(self, index: int, x_RE: Tensor, cos: Tensor, sin: Tensor, attention: Attention) -> Tensor:
        return Decoder._layer(self, index, x_RE, cos, sin, attention, None)

    def _layer(self, index: int, x_RE: Tensor, cos: Tensor, sin: Tensor, attention: Attention, lora: LoraDelta | None) -> Tensor:
        y_RE: Tensor = self.layers[index](x_RE, cos, sin, attention, self._root.checkpoint_layers)
        return y_RE

    def _norm(self, x: Tensor, weight: Tensor) -> Tensor:
        return super()._norm(x, weight.to(self.dtype))

    def _embed(self, tokens_R: Tensor) -> Tensor:
        master_VE = self.embedding_VE
        x_RE = F.embedding(tokens_R, master_VE.detach()).to(self.dtype)
        embedded: Tensor = EmbeddingGradient.apply(x_RE, tokens_R, master_VE)
        return embedded


class DecoderModule(_Parameters):
    """`forward` gives log-probabilities of chosen rows' targets. `dtype` is that of the arithmetic."""

    def __init__(self, config: ModelConfig, weights: Mapping[str, Tensor], dtype: torch.dtype, device: torch.device) -> None:
        super().__init__({name: weight for name, weight in weights.items() if not name.startswith("layers.")})
        self.checkpoint_layers = False
        self.view = _View(config, self, dtype, device)
        prefixes = [f"layers.{index}." for index in range(config.num_layers)]
        self.layers = nn.ModuleList(
            LayerModule(self.view, index, {n.removeprefix(p): w for n, w in weights.items() if n.startswith(p)})
            for index, p in enumerate(prefixes)
        )  # fmt: skip

    def forward(
        self, tokens_R: Tensor, positions_R: Tensor, attention: Attention, rows_M: Tensor, targets_M: Tensor, temperatures_M: Tensor
    ) -> Tensor:
        """Log-probability [M] in nats, float32, of each row's target at its own temperature."""
        hidden_RE = self.view.forward(tokens_R, positions_R, attention)
        hidden_ME = hidden_RE.index_select(0, rows_M)
        parts = zip(*(x.split(CHUNK_ROWS) for x in (hidden_ME, targets_M, temperatures_M)), strict=True)
        return torch.cat([checkpoint(self._logprobs, *part, use_reentrant=False, preserve_rng_state=False) for part in parts])

    def _logprobs(self, hidden_CE: Tensor, targets_C: Tensor, temperatures_C: Tensor) -> Tensor:
        return token_logprobs(self.view.logits(hidden_CE), targets_C, temperatures_C[:, None])

    def named_weights(self) -> dict[str, Tensor]:
        """All parameters by the names of `models.tensor_names`."""
        return {name.replace(DOT, "."): parameter for name, parameter in self.named_parameters()}


DOT = "-"


def _attribute(name: str) -> str:
    return name.replace(".", DOT)
