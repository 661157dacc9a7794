"""The shape of a decoder-only language model."""

from typing import Literal

import msgspec


class RopeScaling(msgspec.Struct, frozen=True):
    """How rotary frequencies are stretched. Fields that a kind does not use are None."""

    kind: Literal["default", "linear", "dynamic", "llama3", "yarn"] = "default"
    factor: float = 1.0
    low_freq_factor: float | None = None
    high_freq_factor: float | None = None
    original_max_context_tokens: int | None = None
    beta_fast: float | None = None
    beta_slow: float | None = None
    attention_factor: float | None = None


class ModelConfig(msgspec.Struct, frozen=True):
    """Dense Llama, Qwen2 and Qwen3 differ only in what is set here."""

    family: Literal["llama", "qwen2", "qwen3"]
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rms_norm_epsilon: float
    rope_theta: float
    rope_scaling: RopeScaling
    tied_embeddings: bool
    max_context_tokens: int
    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    eos_token_ids: tuple[int, ...] = ()
    pad_token_id: int = 0

    @property
    def num_parameters(self) -> int:
        attention = self.hidden_size * self.head_dim * (2 * self.num_heads + 2 * self.num_kv_heads)
        embedding = self.vocab_size * self.hidden_size * (1 if self.tied_embeddings else 2)
        return self.num_layers * (attention + 3 * self.hidden_size * self.intermediate_size + 2 * self.hidden_size) + embedding

    def cache_bytes_per_token(self, bytes_per_value: int) -> int:
        return 2 * self.num_layers * self.num_kv_heads * self.head_dim * bytes_per_value
