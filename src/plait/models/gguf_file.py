"""GGUF files: configuration, dequantised weights, and conversion to a Hugging Face folder.

- Served are the architectures llama, qwen2 and qwen3; metadata that changes the forward pass and is not served is an error.
- Weights come out as float32, because a block's scale times its integer has no exact bfloat16 form.
- llama.cpp stores the rows of llama's q and k interleaved for its rotary kernel; they are put back in Hugging Face order here.
- Torch is not needed.
"""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from plait.models.gguf_tokenizer import build_tokenizer, tokenizer_settings
from plait.models.hf_config import ARCHITECTURES, Family, to_hf_config
from plait.models.tensor_names import hf_name
from plait.types.errors import ModelError
from plait.types.model import ModelConfig, RopeScaling

Float32Array = NDArray[np.float32]
TENSOR_NAMES = {
    "token_embd": "embed_tokens",
    "output_norm": "norm",
    "output": "lm_head",
    "attn_norm": "input_norm",
    "ffn_norm": "post_attention_norm",
    "attn_q": "q_proj",
    "attn_k": "k_proj",
    "attn_v": "v_proj",
    "attn_output": "o_proj",
    "attn_q_norm": "q_norm",
    "attn_k_norm": "k_norm",
    "ffn_gate": "gate_proj",
    "ffn_up": "up_proj",
    "ffn_down": "down_proj",
}
ROPE_FREQUENCIES = "rope_freqs.weight"
"""llama3's rotary scaling, stored by llama.cpp as one divisor per frequency."""
LLAMA3_LOW, LLAMA3_HIGH, LLAMA3_CONTEXT = 1.0, 4.0, 8192
"""The llama3 scaling of every published model; the divisors of a file are checked against it."""
SHARD_BYTES = 2 * 1024**3
"""Largest safetensors file that a conversion writes, and so about the memory it takes."""


class GgufFile:
    """A memory-mapped GGUF file. Raises `ModelError` if it is torn or its architecture is not served."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._reader = _open(path)
        self.metadata: dict[str, Any] = {name: field.contents() for name, field in self._reader.fields.items()}
        self._tensors = {_plait_name(tensor.name): tensor for tensor in self._reader.tensors}
        self._frequencies = self._tensors.pop(ROPE_FREQUENCIES, None)
        self.config = self._parse_config()

    def tensor_names(self) -> tuple[str, ...]:
        return tuple(self._tensors)

    def tensor_bytes(self) -> Iterator[tuple[str, int]]:
        """Name and float32 size of each tensor."""
        return ((name, 4 * int(tensor.n_elements)) for name, tensor in self._tensors.items())

    def tensor(self, name: str) -> Float32Array:
        """One tensor, dequantised, rows in Hugging Face order."""
        from gguf.quants import dequantize

        stored = self._tensors[name]
        values = np.array(dequantize(stored.data, stored.tensor_type), dtype=np.float32)
        module = name.removesuffix(".bias").rsplit(".", 1)[-1]
        if self.config.family == "llama" and module in ("q_proj", "k_proj"):
            return _unpermuted(values, self.config.num_heads if module == "q_proj" else self.config.num_kv_heads)
        return values

    def _parse_config(self) -> ModelConfig:
        family = self._family()
        hidden_size, num_heads = self._need("embedding_length"), self._need("attention.head_count")
        head_dim = self._get("attention.key_length", hidden_size // num_heads)
        if self._get("rope.dimension_count", head_dim) != head_dim:
            raise ModelError(f"{self.path} rotates only {self._need('rope.dimension_count')} of {head_dim} dimensions.")
        keys = ("tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id")
        stops = tuple(dict.fromkeys(self.metadata[key] for key in keys if key in self.metadata))
        config = ModelConfig(
            family=family,
            vocab_size=self._embedding_rows(),
            hidden_size=hidden_size,
            intermediate_size=self._need("feed_forward_length"),
            num_layers=self._need("block_count"),
            num_heads=num_heads,
            num_kv_heads=self._get("attention.head_count_kv", num_heads),
            head_dim=head_dim,
            rms_norm_epsilon=float(self._need("attention.layer_norm_rms_epsilon")),
            rope_theta=float(self._get("rope.freq_base", 10_000.0)),
            rope_scaling=RopeScaling(),
            tied_embeddings="lm_head" not in self._tensors,
            max_context_tokens=self._need("context_length"),
            qkv_bias="layers.0.q_proj.bias" in self._tensors,
            output_bias="layers.0.o_proj.bias" in self._tensors,
            mlp_bias="layers.0.up_proj.bias" in self._tensors,
            qk_norm="layers.0.q_norm" in self._tensors,
            eos_token_ids=stops,
            pad_token_id=self.metadata.get("tokenizer.ggml.padding_token_id", stops[0] if stops else 0),
        )
        return _with_rope_scaling(config, self)

    def _family(self) -> Family:
        architecture = self.metadata.get("general.architecture")
        for family in ARCHITECTURES.values():
            if family == architecture:
                return family
        served = ", ".join(ARCHITECTURES.values())
        raise ModelError(f"{self.path} has general.architecture {architecture!r}.", f"Served are {served}.")

    def _embedding_rows(self) -> int:
        if "embed_tokens" not in self._tensors:
            raise ModelError(f"{self.path} has no tensor token_embd.weight.", "Give a file that holds a whole model.")
        return int(self._tensors["embed_tokens"].shape[1])

    def _get(self, key: str, default: Any) -> Any:
        return self.metadata.get(f"{self.metadata['general.architecture']}.{key}", default)

    def _need(self, key: str) -> Any:
        value = self._get(key, None)
        if value is None:
            raise ModelError(f"{self.path} has no metadata {key!r}.", "Convert the model again with a current llama.cpp.")
        return value

    def frequency_divisors(self) -> Float32Array | None:
        return None if self._frequencies is None else np.asarray(self._frequencies.data, dtype=np.float32)

    def rope_scaling_metadata(self) -> tuple[str, float, int | None]:
        """Kind, factor and original context."""
        kind = self._get("rope.scaling.type", "none")
        return kind, float(self._get("rope.scaling.factor", 1.0)), self._get("rope.scaling.original_context_length", None)


def convert_gguf(path: Path, folder: Path) -> None:
    """Write config.json, generation_config.json, float32 safetensors and the tokenizer's files into an existing folder."""
    gguf = GgufFile(path)
    config = to_hf_config(gguf.config)
    _write_json(folder / "config.json", config)
    _write_json(folder / "generation_config.json", {key: config[key] for key in ("eos_token_id", "pad_token_id")})
    build_tokenizer(gguf.metadata, path).save(str(folder / "tokenizer.json"))
    _write_json(folder / "tokenizer_config.json", tokenizer_settings(gguf.metadata))
    _write_weights(gguf, folder)


def _open(path: Path) -> Any:
    try:
        from gguf import GGUFReader
    except ImportError as error:
        raise ModelError(f"{path} needs the package gguf.", "Install it: pip install 'plait[models]'.") from error
    try:
        return GGUFReader(path)
    except (ValueError, OSError, IndexError) as error:
        raise ModelError(f"{path} is not a readable GGUF file: {error}.", "Fetch the file again.") from error


def _plait_name(name: str) -> str:
    """`blk.3.attn_q.bias` -> `layers.3.q_proj.bias`. Names without a counterpart stay and are reported as unused."""
    prefix, parts = "", name.split(".")
    if parts[0] == "blk":
        prefix, parts = f"layers.{parts[1]}.", parts[2:]
    if parts[0] not in TENSOR_NAMES or len(parts) != 2:
        return name
    return prefix + TENSOR_NAMES[parts[0]] + (".bias" if parts[1] == "bias" else "")


def _unpermuted(values: Float32Array, num_heads: int) -> Float32Array:
    """Undo `LlamaModel.permute` of llama.cpp's convert_hf_to_gguf.py: pairs (i, i + dim/2) lie next to each other there."""
    half = values.shape[0] // num_heads // 2
    pairs = values.reshape(num_heads, half, 2, *values.shape[1:])
    return np.ascontiguousarray(pairs.swapaxes(1, 2).reshape(values.shape))


def _with_rope_scaling(config: ModelConfig, gguf: GgufFile) -> ModelConfig:
    kind, factor, original = gguf.rope_scaling_metadata()
    divisors = gguf.frequency_divisors()
    if divisors is not None:
        return replace(config, rope_scaling=_llama3_scaling(config, divisors, gguf.path))
    if kind == "none" or (kind == "linear" and factor == 1.0):
        return config
    if kind == "linear":
        return replace(config, rope_scaling=RopeScaling(kind="linear", factor=factor))
    if kind != "yarn":
        raise ModelError(f"{gguf.path} has rope.scaling.type {kind!r}.", "Served are none, linear, yarn and llama3's.")
    magnitude = 1.0 if factor <= 1 else 0.1 * math.log(factor) + 1.0
    scaling = RopeScaling(
        kind="yarn",
        factor=factor,
        original_max_context_tokens=original or config.max_context_tokens,
        beta_fast=32.0,
        beta_slow=1.0,
        attention_factor=magnitude,
    )
    return replace(config, rope_scaling=scaling)


def _llama3_scaling(config: ModelConfig, divisors: Float32Array, path: Path) -> RopeScaling:
    """The scaling whose divisors these are. Raises `ModelError` if they are not llama3's (LLAMA3_* above)."""
    factor = float(divisors.max())
    wavelengths = 2 * math.pi * config.rope_theta ** (np.arange(0, config.head_dim, 2) / config.head_dim)
    smooth = (LLAMA3_CONTEXT / wavelengths - LLAMA3_LOW) / (LLAMA3_HIGH - LLAMA3_LOW)
    expected = 1 / ((1 - smooth) / factor + smooth)
    expected = np.where(wavelengths > LLAMA3_CONTEXT / LLAMA3_LOW, factor, expected)
    expected = np.where(wavelengths < LLAMA3_CONTEXT / LLAMA3_HIGH, 1.0, expected)
    if divisors.shape != expected.shape or not np.allclose(divisors, expected, rtol=1e-3):
        raise ModelError(f"{path}: {ROPE_FREQUENCIES} is not llama3's scaling.", "Give the model as a safetensors folder.")
    return RopeScaling(
        kind="llama3",
        factor=factor,
        low_freq_factor=LLAMA3_LOW,
        high_freq_factor=LLAMA3_HIGH,
        original_max_context_tokens=LLAMA3_CONTEXT,
    )


def _write_weights(gguf: GgufFile, folder: Path) -> None:
    from safetensors.numpy import save_file

    shards = list(_shards(gguf))
    weight_map: dict[str, str] = {}
    for index, names in enumerate(shards, start=1):
        file_name = "model.safetensors" if len(shards) == 1 else f"model-{index:05d}-of-{len(shards):05d}.safetensors"
        save_file({hf_name(name): gguf.tensor(name) for name in names}, folder / file_name, metadata={"format": "pt"})
        weight_map |= {hf_name(name): file_name for name in names}
    if len(shards) > 1:
        _write_json(folder / "model.safetensors.index.json", {"metadata": {}, "weight_map": weight_map})


def _shards(gguf: GgufFile) -> Iterator[list[str]]:
    names: list[str] = []
    num_bytes = 0
    for name, size in gguf.tensor_bytes():
        if names and num_bytes + size > SHARD_BYTES:
            yield names
            names, num_bytes = [], 0
        names.append(name)
        num_bytes += size
    yield names


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
