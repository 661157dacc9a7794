"""config.json of a Hugging Face folder <-> `ModelConfig`.

- Everything that changes the forward pass is either represented in `ModelConfig` or refused by name; nothing is dropped in silence.
- Rotary settings are read in both spellings: `rope_parameters` (transformers 5), `rope_scaling` with `rope_theta` (transformers 4).
- A yarn attention factor left to be inferred is resolved here, so that `RopeScaling` alone fixes the frequencies.
"""

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from plait.types.errors import ModelError
from plait.types.model import ModelConfig, RopeScaling

Family = Literal["llama", "qwen2", "qwen3"]
ARCHITECTURES: dict[str, Family] = {"LlamaForCausalLM": "llama", "Qwen2ForCausalLM": "qwen2", "Qwen3ForCausalLM": "qwen3"}
DEFAULT_ROPE_THETA = 10_000.0
DEFAULT_CONTEXT_TOKENS: dict[Family, int] = {"llama": 2048, "qwen2": 32768, "qwen3": 32768}
"""What transformers takes where config.json does not say."""
ROPE_KINDS = ("default", "linear", "dynamic", "llama3", "yarn")


def read_config(folder: Path) -> ModelConfig:
    """Read config.json and, for end tokens, generation_config.json. Raises `ModelError` naming what does not fit."""
    raw = read_json(folder / "config.json")
    generation_path = folder / "generation_config.json"
    return parse_config(raw, read_json(generation_path) if generation_path.exists() else {})


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object. Raises `ModelError` naming the file if it is missing or is not one."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ModelError(f"{path} does not exist.", "Give a folder with config.json, weights and tokenizer.json.") from error
    except ValueError as error:
        raise ModelError(f"{path} is not valid JSON: {error}.", "Fetch the file again.") from error
    if not isinstance(value, dict):
        raise ModelError(f"{path} holds a {type(value).__name__}, not an object.", "Fetch the file again.")
    return value


def parse_config(raw: Mapping[str, Any], generation: Mapping[str, Any] | None = None) -> ModelConfig:
    """`raw` is config.json, `generation` generation_config.json. Raises `ModelError` for what is not served."""
    family = _family(raw)
    _refuse_unserved(raw)
    hidden_size, num_heads = _integer(raw, "hidden_size"), _integer(raw, "num_attention_heads")
    eos_token_ids = _token_ids(generation or {}, raw, key="eos_token_id")
    pads = _token_ids(raw, generation or {}, key="pad_token_id") or eos_token_ids or (0,)
    attention_bias = bool(raw.get("attention_bias", False))
    max_context_tokens = int(raw.get("max_position_embeddings") or DEFAULT_CONTEXT_TOKENS[family])
    config = ModelConfig(
        family=family,
        vocab_size=_integer(raw, "vocab_size"),
        hidden_size=hidden_size,
        intermediate_size=_integer(raw, "intermediate_size"),
        num_layers=_integer(raw, "num_hidden_layers"),
        num_heads=num_heads,
        num_kv_heads=int(raw.get("num_key_value_heads") or num_heads),
        head_dim=int(raw.get("head_dim") or (128 if family == "qwen3" else hidden_size // num_heads)),
        rms_norm_epsilon=float(raw.get("rms_norm_eps", 1e-6)),
        rope_theta=_rope_theta(raw),
        rope_scaling=_rope_scaling(raw, max_context_tokens),
        tied_embeddings=bool(raw.get("tie_word_embeddings", False)),
        max_context_tokens=max_context_tokens,
        qkv_bias=family == "qwen2" or attention_bias,
        output_bias=family != "qwen2" and attention_bias,
        mlp_bias=family == "llama" and bool(raw.get("mlp_bias", False)),
        qk_norm=family == "qwen3",
        eos_token_ids=eos_token_ids,
        pad_token_id=pads[0],
    )
    _check_heads(config)
    return config


def to_hf_config(config: ModelConfig) -> dict[str, Any]:
    """A config.json that both spellings' readers take, and that `parse_config` reads back to an equal `ModelConfig`."""
    architecture = next(name for name, family in ARCHITECTURES.items() if family == config.family)
    raw: dict[str, Any] = {
        "architectures": [architecture],
        "model_type": config.family,
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "head_dim": config.head_dim,
        "hidden_act": "silu",
        "rms_norm_eps": config.rms_norm_epsilon,
        "rope_theta": config.rope_theta,
        "rope_scaling": _hf_rope_scaling(config.rope_scaling),
        "tie_word_embeddings": config.tied_embeddings,
        "max_position_embeddings": config.max_context_tokens,
        "eos_token_id": _hf_token_ids(config.eos_token_ids),
        "pad_token_id": config.pad_token_id,
    }
    if config.family != "qwen2":
        raw["attention_bias"] = config.qkv_bias
    if config.family == "llama":
        raw["mlp_bias"] = config.mlp_bias
    return raw


def _family(raw: Mapping[str, Any]) -> Family:
    names = raw.get("architectures") or [f"{str(raw.get('model_type', '')).capitalize()}ForCausalLM"]
    for name in names:
        if name in ARCHITECTURES:
            return ARCHITECTURES[name]
    raise ModelError(f"architectures is {names!r}, which is not served.", f"Served are {', '.join(ARCHITECTURES)}.")


def _refuse_unserved(raw: Mapping[str, Any]) -> None:
    sliding = raw.get("use_sliding_window") or "sliding_attention" in (raw.get("layer_types") or ())
    if sliding:
        raise ModelError("The model uses sliding-window attention (use_sliding_window).", "Use a model with full attention.")
    if raw.get("hidden_act", "silu") != "silu":
        raise ModelError(f"hidden_act is {raw['hidden_act']!r}.", "Only 'silu' is served.")
    if raw.get("quantization_config"):
        method = dict(raw["quantization_config"]).get("quant_method", "unknown")
        raise ModelError(f"The weights are quantised (quantization_config, {method}).", "Use unquantised weights or a GGUF file.")


def _check_heads(config: ModelConfig) -> None:
    if config.num_heads % config.num_kv_heads:
        message = f"num_attention_heads {config.num_heads} is not a multiple of num_key_value_heads {config.num_kv_heads}."
        raise ModelError(message, "Correct config.json.")
    if config.head_dim % 2:
        raise ModelError(f"head_dim {config.head_dim} is odd.", "Rotary embedding needs an even one.")


def _integer(raw: Mapping[str, Any], key: str) -> int:
    value = raw.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ModelError(f"config.json has {key} = {value!r}.", "It must be a positive whole number.")
    return value


def _token_ids(*sources: Mapping[str, Any], key: str) -> tuple[int, ...]:
    found: dict[int, None] = {}
    for source in sources:
        value = source.get(key)
        values: Iterable[Any] = value if isinstance(value, list) else [value]
        found.update({int(token): None for token in values if token is not None})
    return tuple(found)


def _hf_token_ids(tokens: tuple[int, ...]) -> int | list[int] | None:
    return tokens[0] if len(tokens) == 1 else list(tokens) or None


def _rope(raw: Mapping[str, Any]) -> dict[str, Any]:
    return dict(raw.get("rope_scaling") or raw.get("rope_parameters") or {})


def _rope_theta(raw: Mapping[str, Any]) -> float:
    return float(_rope(raw).get("rope_theta") or raw.get("rope_theta") or DEFAULT_ROPE_THETA)


def _rope_scaling(raw: Mapping[str, Any], max_context_tokens: int) -> RopeScaling:
    rope = _rope(raw)
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind not in ROPE_KINDS:
        raise ModelError(f"rope_type is {kind!r}, which is not served.", f"Served are {', '.join(ROPE_KINDS)}.")
    if (rope.get("partial_rotary_factor") or raw.get("partial_rotary_factor") or 1.0) != 1.0:
        raise ModelError("partial_rotary_factor differs from 1.", "Only full rotary embedding is served.")
    if kind == "default":
        return RopeScaling()
    own_original = rope.get("original_max_position_embeddings") or max_context_tokens
    original = int(raw.get("original_max_position_embeddings") or own_original)
    if kind == "dynamic":
        original = max_context_tokens
    factor = float(rope.get("factor") or (max_context_tokens / original if kind == "yarn" else _required(rope, "factor", kind)))
    if kind == "linear":
        return RopeScaling(kind="linear", factor=factor)
    if kind == "yarn":
        return _yarn(rope, factor, original)
    if kind == "dynamic":
        return RopeScaling(kind="dynamic", factor=factor, original_max_context_tokens=original)
    return RopeScaling(
        kind="llama3",
        factor=factor,
        low_freq_factor=_required(rope, "low_freq_factor", kind),
        high_freq_factor=_required(rope, "high_freq_factor", kind),
        original_max_context_tokens=original,
    )


def _yarn(rope: Mapping[str, Any], factor: float, original: int) -> RopeScaling:
    """YaRN (arXiv 2309.00071); the default attention factor is 0.1 ln(factor) + 1."""
    if not rope.get("truncate", True):
        raise ModelError("rope scaling has truncate = false.", "Only yarn with a truncated correction range is served.")

    def magnitude(weight: float) -> float:
        return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0

    attention_factor, mscale, mscale_all = (rope.get(key) for key in ("attention_factor", "mscale", "mscale_all_dim"))
    if attention_factor is None:
        attention_factor = magnitude(mscale) / magnitude(mscale_all) if mscale and mscale_all else magnitude(1.0)
    return RopeScaling(
        kind="yarn",
        factor=factor,
        original_max_context_tokens=original,
        beta_fast=float(rope.get("beta_fast") or 32),
        beta_slow=float(rope.get("beta_slow") or 1),
        attention_factor=float(attention_factor),
    )


def _required(rope: Mapping[str, Any], key: str, kind: str) -> float:
    if rope.get(key) is None:
        raise ModelError(f"rope scaling {kind!r} has no {key}.", "Correct config.json.")
    return float(rope[key])


def _hf_rope_scaling(scaling: RopeScaling) -> dict[str, Any] | None:
    if scaling.kind == "default":
        return None
    fields = {key: value for key, value in msgspec.structs.asdict(scaling).items() if value is not None}
    original = fields.pop("original_max_context_tokens", None)
    rope = {"rope_type": fields.pop("kind"), **fields}
    if original is not None and scaling.kind != "dynamic":
        rope["original_max_position_embeddings"] = original
    return rope
