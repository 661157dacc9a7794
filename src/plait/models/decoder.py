"""The decoder of the dense Llama, Qwen2 and Qwen3 families; rollout and training both run this one.

Rows are tokens of any sequences, flattened; what joins rows into sequences is the `Attention` that the caller passes.
Weights are frozen here; `models.trained_decoder` has the same decoder with weights that are trained. Names of weights and their
shapes are in `models.tensor_names`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from plait.models.attention import Attention
from plait.models.fused import rms_norm, swiglu
from plait.models.kept_weights import FLOAT32_BYTES, Budget
from plait.models.kernels import Linear, PlainLinear, make_linear, uses_onednn
from plait.models.rotary import Rotary, rotate
from plait.types.model import ModelConfig

QKV, OUTPUT, GATE_UP, DOWN, UNEMBED = "qkv", "output", "gate_up", "down", "unembed"
"""The sites where adapters add to a linear layer; qkv and gate_up are fused."""

SITE_MODULES = {
    QKV: ("q_proj", "k_proj", "v_proj"),
    OUTPUT: ("o_proj",),
    GATE_UP: ("gate_proj", "up_proj"),
    DOWN: ("down_proj",),
    UNEMBED: ("lm_head",),
}


class LoraDelta(Protocol):
    """Adds the adapters' share to a site's output, in place where no gradient is asked for."""

    def __call__(self, site: str, layer: int, x_RI: Tensor, y_RO: Tensor) -> Tensor: ...


class _Layer:
    """One layer's weights, fused."""

    def __init__(self, weights: Mapping[str, Tensor], index: int, linear: Callable[[Sequence[str]], Linear]) -> None:
        """`linear` makes one of the weights of these names."""
        prefix = f"layers.{index}."
        self.input_norm = weights[prefix + "input_norm"]
        self.post_attention_norm = weights[prefix + "post_attention_norm"]
        self.q_norm, self.k_norm = weights.get(prefix + "q_norm"), weights.get(prefix + "k_norm")
        self.linear = {site: linear([prefix + m for m in SITE_MODULES[site]]) for site in (QKV, OUTPUT, GATE_UP, DOWN)}

    @property
    def num_bytes(self) -> int:
        norms = (self.input_norm, self.post_attention_norm, self.q_norm, self.k_norm)
        return sum(norm.nbytes for norm in norms if norm is not None) + sum(linear.num_bytes for linear in self.linear.values())


class Decoder:
    """`forward` gives the normed hidden states of rows, `logits` turns chosen rows into logits."""

    trains_weights = False
    """Whether the weights have gradients of their own."""

    def __init__(
        self,
        config: ModelConfig,
        weights: Mapping[str, Tensor],
        prepack: bool = False,
        float32_bytes: int = FLOAT32_BYTES,
    ) -> None:
        """`float32_bytes` bounds the copies of weights that `models.kept_weights` makes where they are the faster."""
        self.config, self._float32_bytes = config, float32_bytes
        self.dtype, self.device = weights["embed_tokens"].dtype, weights["embed_tokens"].device
        self._prepack = prepack and uses_onednn(self.dtype, self.device)
        self.rotary = Rotary(config, self.device)
        self.lay_out(weights)

    def lay_out(self, weights: Mapping[str, Tensor]) -> None:
        """Take weights, those it was made with, onto the device again; each time with the same bits."""
        budget = Budget(self._float32_bytes)

        def linear(names: Sequence[str]) -> Linear:
            return self._make_linear(weights, names, budget)

        self.embedding_VE, self.final_norm = weights["embed_tokens"], weights["norm"]
        self.unembedding = linear(["lm_head" if "lm_head" in weights else "embed_tokens"])
        self.layers = [_Layer(weights, index, linear) for index in range(self.config.num_layers)]

    def give_up(self) -> None:
        """Free all weights, as far as they are laid out; nothing is computed until `lay_out`."""
        for name in ("embedding_VE", "final_norm", "unembedding"):
            self.__dict__.pop(name, None)
        self.layers = []

    @property
    def num_bytes(self) -> int:
        """Of weights, in whatever forms they are laid out."""
        if not self.layers:
            return 0
        shares_embedding = isinstance(self.unembedding, PlainLinear) and self.unembedding.weight_OI is self.embedding_VE
        embedding_bytes = 0 if shares_embedding else self.embedding_VE.nbytes
        return embedding_bytes + self.unembedding.num_bytes + sum(layer.num_bytes for layer in self.layers)

    def _make_linear(self, weights: Mapping[str, Tensor], names: Sequence[str], budget: Budget) -> Linear:
        bias = [weights[f"{name}.bias"] for name in names if f"{name}.bias" in weights]
        weight = torch.cat([weights[name] for name in names]) if len(names) > 1 else weights[names[0]]
        return make_linear(weight, torch.cat(bias) if bias else None, self._prepack, budget)

    def forward(
        self,
        tokens_R: Tensor,
        positions_R: Tensor,
        attention: Attention,
        lora: LoraDelta | None = None,
        checkpoint_layers: bool = False,
    ) -> Tensor:
        """Hidden states [R, hidden_size] after the final norm."""
        x_RE = self._embed(tokens_R)
        cos, sin = self.rotary.tables(positions_R, self.dtype)
        for index in range(len(self.layers)):
            if checkpoint_layers:
                x_RE = checkpoint(self._layer, index, x_RE, cos, sin, attention, lora, use_reentrant=False)
            else:
                x_RE = self._layer(index, x_RE, cos, sin, attention, lora)
        return self._norm(x_RE, self.final_norm)

    def logits(self, hidden_RE: Tensor, lora: LoraDelta | None = None) -> Tensor:
        """Logits [R, vocab_size] in the model's dtype."""
        y_RV = self.unembedding(hidden_RE)
        return y_RV if lora is None else lora(UNEMBED, 0, hidden_RE, y_RV)

    def _embed(self, tokens_R: Tensor) -> Tensor:
        return F.embedding(tokens_R, self.embedding_VE)

    def _norm(self, x: Tensor, weight: Tensor) -> Tensor:
        return rms_norm(x, weight, self.config.rms_norm_epsilon)

    def _linear(self, site: str, index: int, x_RI: Tensor, lora: LoraDelta | None) -> Tensor:
        y_RO = self.layers[index].linear[site](x_RI)
        return y_RO if lora is None else lora(site, index, x_RI, y_RO)

    def _layer(self, index: int, x_RE: Tensor, cos: Tensor, sin: Tensor, attention: Attention, lora: LoraDelta | None) -> Tensor:
        layer = self.layers[index]
        qkv = self._linear(QKV, index, self._norm(x_RE, layer.input_norm), lora)
        q, k, v = self._heads(layer, qkv, cos, sin)
        x_RE = x_RE + self._linear(OUTPUT, index, attention(index, q, k, v), lora)
        gate_up = self._linear(GATE_UP, index, self._norm(x_RE, layer.post_attention_norm), lora)
        return x_RE + self._linear(DOWN, index, swiglu(gate_up), lora)

    def _heads(self, layer: _Layer, qkv: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        config = self.config
        heads = qkv.view(qkv.shape[0], config.num_heads + 2 * config.num_kv_heads, config.head_dim)
        # Splits, since slices would each leave a full-size gradient on the way back.
        sizes = (config.num_heads, config.num_kv_heads)
        turned, v = heads.split((sum(sizes), config.num_kv_heads), dim=1)
        if layer.q_norm is not None and layer.k_norm is not None:
            q, k = turned.split(sizes, dim=1)
            turned = torch.cat([self._norm(q, layer.q_norm), self._norm(k, layer.k_norm)], dim=1)
        q, k = rotate(turned, cos, sin).split(sizes, dim=1)
        return q, k, v
