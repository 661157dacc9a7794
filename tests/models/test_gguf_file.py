from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType, GGUFWriter

from plait.models.gguf_file import TENSOR_NAMES, GgufFile, convert_gguf
from plait.models.hf_config import Family
from plait.models.tiny import make_tiny_model
from plait.models.tokenizer import Tokenizer
from plait.models.weights import base_digest, load_model
from plait.types.errors import ModelError
from plait.types.messages import Message
from plait.types.model import ModelConfig, RopeScaling
from tests.models.reference import decoder_logits, load_decoder, random_tokens

GGUF_NAMES = {ours: theirs for theirs, ours in TENSOR_NAMES.items()}
LLAMA3 = RopeScaling(kind="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_context_tokens=8192)


def gguf_name(name: str) -> str:
    if name.startswith("layers."):
        _, layer, module, *rest = name.split(".")
        return f"blk.{layer}.{GGUF_NAMES[module]}.{rest[0] if rest else 'weight'}"
    return f"{GGUF_NAMES[name]}.weight"


def permuted(values: np.ndarray, num_heads: int) -> np.ndarray:
    """llama.cpp's `LlamaModel.permute`."""
    return values.reshape(num_heads, 2, values.shape[0] // num_heads // 2, *values.shape[1:]).swapaxes(1, 2).reshape(values.shape)


def write_gguf(folder: Path, path: Path, kind: GGMLQuantizationType, **metadata: Any) -> Path:
    """The model in `folder` as llama.cpp would convert it."""
    config, weights = load_model(folder)
    writer = GGUFWriter(path, config.family)
    _write_settings(writer, config)
    _write_tokenizer(writer, folder, metadata.pop("pre", "smollm"))
    for key, value in metadata.items():
        writer.add_key_value(key.replace("__", "."), value, gguf.GGUFValueType.get_type(value))
    for name, tensor in weights.items():
        values = tensor.numpy()
        module = name.removesuffix(".bias").rsplit(".", 1)[-1]
        if config.family == "llama" and module in ("q_proj", "k_proj"):
            values = permuted(values, config.num_heads if module == "q_proj" else config.num_kv_heads)
        stored = kind if values.ndim == 2 else GGMLQuantizationType.F32
        writer.add_tensor(gguf_name(name), gguf.quants.quantize(np.ascontiguousarray(values), stored), raw_dtype=stored)
    if config.rope_scaling.kind == "llama3":
        writer.add_tensor("rope_freqs.weight", llama3_divisors(config))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def llama3_divisors(config: ModelConfig) -> np.ndarray:
    from plait.models.rotary import rotary_frequencies

    plain = 1 / config.rope_theta ** (torch.arange(0, config.head_dim, 2).double() / config.head_dim)
    return (plain / rotary_frequencies(config)[0]).float().numpy()


def _write_settings(writer: GGUFWriter, config: ModelConfig) -> None:
    writer.add_context_length(config.max_context_tokens)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_block_count(config.num_layers)
    writer.add_head_count(config.num_heads)
    writer.add_head_count_kv(config.num_kv_heads)
    writer.add_key_length(config.head_dim)
    writer.add_layer_norm_rms_eps(config.rms_norm_epsilon)
    writer.add_rope_freq_base(config.rope_theta)
    writer.add_vocab_size(config.vocab_size)


def _write_tokenizer(writer: GGUFWriter, folder: Path, pre: str) -> None:
    import json

    raw = json.loads((folder / "tokenizer.json").read_text())
    vocabulary = sorted(raw["model"]["vocab"].items(), key=lambda item: item[1])
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list([token for token, _ in vocabulary])
    writer.add_token_types([3 if index < 3 else 1 for _, index in vocabulary])
    writer.add_token_merges([" ".join(merge) for merge in raw["model"]["merges"]])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_pad_token_id(2)
    writer.add_chat_template(json.loads((folder / "tokenizer_config.json").read_text())["chat_template"])


@pytest.mark.parametrize(
    ("family", "overrides"),
    [
        ("llama", {}),
        ("llama", {"tied_embeddings": False, "rope_theta": 500000.0, "rope_scaling": LLAMA3, "max_context_tokens": 131072}),
        ("llama", {"qkv_bias": True, "output_bias": True, "mlp_bias": True}),
        ("qwen2", {}),
        ("qwen3", {}),
    ],
)
def test_float_file_converts_to_the_model_it_came_from(tmp_path: Path, family: Family, overrides: dict[str, Any]) -> None:
    folder = make_tiny_model(tmp_path / "source", family, **overrides)
    path = write_gguf(folder, tmp_path / "model.gguf", GGMLQuantizationType.F32)
    (tmp_path / "converted").mkdir()
    convert_gguf(path, tmp_path / "converted")
    (config, weights), (expected_config, expected) = load_model(tmp_path / "converted"), load_model(folder)
    assert config == GgufFile(path).config
    assert _rounded(config) == _rounded(expected_config)
    assert base_digest(weights) == base_digest(expected) == base_digest(load_model(path)[1])


def _rounded(config: ModelConfig) -> ModelConfig:
    from msgspec.structs import replace

    scaling = replace(config.rope_scaling, factor=round(config.rope_scaling.factor, 4))
    return replace(config, rms_norm_epsilon=round(config.rms_norm_epsilon, 9), rope_scaling=scaling)


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3"])
def test_quantised_file_gives_the_logits_of_transformers(tmp_path: Path, family: Family) -> None:
    from transformers import AutoModelForCausalLM

    # transformers takes the width of qwen3's heads from a default instead of the file.
    overrides = {"head_dim": 128} if family == "qwen3" else {}
    path = write_gguf(make_tiny_model(tmp_path / "source", family, **overrides), tmp_path / "model.gguf", GGMLQuantizationType.Q8_0)
    (tmp_path / "converted").mkdir()
    convert_gguf(path, tmp_path / "converted")
    model = AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file=path.name, dtype=torch.float32).eval()
    tokens = random_tokens(384)
    with torch.no_grad():
        expected = model(tokens).logits
    torch.testing.assert_close(decoder_logits(load_decoder(tmp_path / "converted"), tokens), expected, atol=1e-4, rtol=0)


def test_large_files_become_shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_gguf(make_tiny_model(tmp_path / "source"), tmp_path / "model.gguf", GGMLQuantizationType.F32)
    monkeypatch.setattr("plait.models.gguf_file.SHARD_BYTES", 100_000)
    (tmp_path / "converted").mkdir()
    convert_gguf(path, tmp_path / "converted")
    assert len(list((tmp_path / "converted").glob("model-*.safetensors"))) > 2
    assert base_digest(load_model(tmp_path / "converted")[1]) == base_digest(load_model(path)[1])


def test_tokenizer_and_template_come_along(tmp_path: Path) -> None:
    folder = make_tiny_model(tmp_path / "source")
    (tmp_path / "converted").mkdir()
    convert_gguf(write_gguf(folder, tmp_path / "model.gguf", GGMLQuantizationType.F32), tmp_path / "converted")
    ours, original = Tokenizer.load(tmp_path / "converted"), Tokenizer.load(folder)
    for text in ("What is 12 + 345?", "  17\n\n 3 😀", "<|im_start|>x<|im_end|>"):
        assert ours.encode(text) == original.encode(text)
    assert ours.render_prompt([Message("user", "1")]) == original.render_prompt([Message("user", "1")])
    assert ours.stop_token_ids == (2,)


@pytest.mark.parametrize(
    ("pre", "pieces"),
    [
        ("smollm", ["a", "1", "2", "3", "4"]),
        ("qwen2", ["a", "1", "2", "3", "4"]),
        ("gpt-2", ["a", "1234"]),
        ("llama-bpe", ["a", "123", "4"]),
    ],
)
def test_splitting_rules_differ_on_digits(tmp_path: Path, pre: str, pieces: list[str]) -> None:
    from plait.models.gguf_tokenizer import build_tokenizer

    path = write_gguf(make_tiny_model(tmp_path), tmp_path / "model.gguf", GGMLQuantizationType.F32, pre=pre)
    splitter = build_tokenizer(GgufFile(path).metadata, path).pre_tokenizer
    assert splitter is not None
    assert [piece for piece, _ in splitter.pre_tokenize_str("a1234")] == pieces


def test_what_is_not_served_is_named(tmp_path: Path) -> None:
    folder = make_tiny_model(tmp_path / "source")
    torn = tmp_path / "torn.gguf"
    torn.write_bytes(b"not a gguf file at all" * 10)
    with pytest.raises(ModelError, match=r"torn\.gguf is not a readable GGUF"):
        GgufFile(torn)
    (tmp_path / "out").mkdir()
    odd = write_gguf(folder, tmp_path / "odd.gguf", GGMLQuantizationType.F32, pre="deepseek-llm")
    with pytest.raises(ModelError, match="deepseek-llm"):
        convert_gguf(odd, tmp_path / "out")
    scaled = write_gguf(folder, tmp_path / "scaled.gguf", GGMLQuantizationType.F32, llama__rope__scaling__type="longrope")
    with pytest.raises(ModelError, match="longrope"):
        GgufFile(scaled)
    partial = write_gguf(folder, tmp_path / "partial.gguf", GGMLQuantizationType.F32, llama__rope__dimension_count=8)
    with pytest.raises(ModelError, match="rotates only 8 of 16"):
        GgufFile(partial)
