"""Names and shapes of a model's tensors, torch-free.

All matrices are [out, in]. The names are this package's; `hf_name` gives the checkpoint's.
"""

from plait.types.model import ModelConfig

ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
MLP = ("gate_proj", "up_proj", "down_proj")
NORMS = {"input_norm": "input_layernorm", "post_attention_norm": "post_attention_layernorm"}


def tensor_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Shape of every tensor of a model, by name. `lm_head` is absent where it is tied to the embedding."""
    shapes: dict[str, tuple[int, ...]] = {
        "embed_tokens": (config.vocab_size, config.hidden_size),
        "norm": (config.hidden_size,),
    }
    if not config.tied_embeddings:
        shapes["lm_head"] = (config.vocab_size, config.hidden_size)
    for layer in range(config.num_layers):
        shapes |= {f"layers.{layer}.{name}": shape for name, shape in _layer_shapes(config).items()}
    return shapes


def projection_shapes(config: ModelConfig) -> dict[str, tuple[int, int]]:
    """[out, in] of each linear of one layer."""
    hidden, ffn = config.hidden_size, config.intermediate_size
    queries, keys = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    return {
        "q_proj": (queries, hidden),
        "k_proj": (keys, hidden),
        "v_proj": (keys, hidden),
        "o_proj": (hidden, queries),
        "gate_proj": (ffn, hidden),
        "up_proj": (ffn, hidden),
        "down_proj": (hidden, ffn),
    }


def hf_module_name(name: str) -> str:
    """The checkpoint's name of a module: `layers.0.q_proj` -> `model.layers.0.self_attn.q_proj`."""
    if name == "lm_head":
        return name
    parts = name.split(".")
    if parts[0] != "layers":
        return f"model.{name}"
    if parts[2] in NORMS:
        return f"model.layers.{parts[1]}.{NORMS[parts[2]]}"
    return f"model.layers.{parts[1]}.{'mlp' if parts[2] in MLP else 'self_attn'}.{parts[2]}"


def hf_name(name: str) -> str:
    """The checkpoint's name of a tensor: `layers.0.q_proj.bias` -> `model.layers.0.self_attn.q_proj.bias`."""
    if name.endswith(".bias"):
        return f"{hf_module_name(name.removesuffix('.bias'))}.bias"
    return f"{hf_module_name(name)}.weight"


def _layer_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    projections = projection_shapes(config)
    shapes: dict[str, tuple[int, ...]] = {
        "input_norm": (config.hidden_size,),
        "post_attention_norm": (config.hidden_size,),
        **projections,
    }
    biased = ATTENTION[:3] * config.qkv_bias + ATTENTION[3:] * config.output_bias + MLP * config.mlp_bias
    shapes |= {f"{name}.bias": projections[name][:1] for name in biased}
    if config.qk_norm:
        shapes |= {"q_norm": (config.head_dim,), "k_norm": (config.head_dim,)}
    return shapes
