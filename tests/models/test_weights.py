import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from plait.models.hf_config import Family
from plait.models.tensor_names import hf_name, tensor_shapes
from plait.models.tiny import make_tiny_model
from plait.models.weights import base_digest, load_model
from plait.types.errors import ModelError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_tiny_model(tmp_path, "qwen3", num_layers=1)


def edit(folder: Path, name: str, tensor: Tensor | None) -> None:
    stored = load_file(folder / "model.safetensors") | {name: tensor}
    save_file({key: value for key, value in stored.items() if value is not None}, folder / "model.safetensors")


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3"])
@pytest.mark.parametrize("tied", [True, False])
def test_loaded_tensors_are_those_of_the_config(tmp_path: Path, family: Family, tied: bool) -> None:
    config, weights = load_model(make_tiny_model(tmp_path, family, tied_embeddings=tied), torch.bfloat16)
    assert {name: tuple(tensor.shape) for name, tensor in weights.items()} == tensor_shapes(config)
    assert ("lm_head" in weights) is not tied
    assert ("layers.0.q_proj.bias" in weights) is (family == "qwen2")
    assert ("layers.0.q_norm" in weights) is (family == "qwen3")
    assert all(tensor.dtype == torch.bfloat16 for tensor in weights.values())


def test_tensors_are_cast_from_what_is_stored_and_own_their_memory(folder: Path) -> None:
    stored = load_file(folder / "model.safetensors")["model.layers.0.mlp.up_proj.weight"]
    weights = load_model(folder, torch.float32)[1]
    assert torch.equal(weights["layers.0.up_proj"], stored)
    weights["layers.0.up_proj"].zero_()
    assert torch.equal(load_model(folder, torch.bfloat16)[1]["layers.0.up_proj"], stored.to(torch.bfloat16))


def test_missing_unused_and_misshaped_tensors_are_named(folder: Path) -> None:
    name = "model.layers.0.self_attn.q_norm.weight"
    for tensor, words in [(None, f"lacks {name}"), (torch.ones(3), rf"{name} has shape \(3,\), config.json implies \(16,\)")]:
        edit(folder, name, tensor)
        with pytest.raises(ModelError, match=words):
            load_model(folder)
    edit(folder, name, torch.ones(16))
    edit(folder, "model.layers.0.self_attn.q_proj.lora_A.weight", torch.ones(4, 64))
    with pytest.raises(ModelError, match=r"no part of the model uses: model\.layers\.0\.self_attn\.q_proj\.lora_A"):
        load_model(folder)


def test_redundant_copies_are_ignored(folder: Path) -> None:
    expected = base_digest(load_model(folder)[1])
    edit(folder, "lm_head.weight", torch.ones(384, 64))
    edit(folder, "model.layers.0.self_attn.rotary_emb.inv_freq", torch.ones(8))
    assert base_digest(load_model(folder)[1]) == expected


def test_shards_are_read_by_their_index(folder: Path) -> None:
    expected = base_digest(load_model(folder)[1])
    stored = load_file(folder / "model.safetensors")
    names = sorted(stored)
    shards = {"one.safetensors": names[::2], "two.safetensors": names[1::2]}
    for file_name, part in shards.items():
        save_file({name: stored[name] for name in part}, folder / file_name)
    (folder / "model.safetensors").unlink()
    weight_map = {name: file_name for file_name, part in shards.items() for name in part}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    assert base_digest(load_model(folder)[1]) == expected
    (folder / "two.safetensors").unlink()
    with pytest.raises(ModelError, match=r"two\.safetensors cannot be read"):
        load_model(folder)


def test_folder_without_safetensors_says_so(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(ModelError, match=r"neither model\.safetensors"):
        load_model(folder)


def test_torn_file_is_named(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-50])
    with pytest.raises(ModelError, match=r"model\.safetensors cannot be read"):
        load_model(folder)


def test_digest_sees_values_names_and_dtypes_but_not_order(folder: Path) -> None:
    weights = load_model(folder)[1]
    digest = base_digest(weights)
    assert base_digest(dict(reversed(weights.items()))) == digest
    assert base_digest({name: tensor.to(torch.bfloat16) for name, tensor in weights.items()}) != digest
    assert base_digest({f"{name}x": tensor for name, tensor in weights.items()}) != digest
    weights["norm"][3] += 1e-6
    assert base_digest(weights) != digest


def test_checkpoint_names() -> None:
    assert hf_name("embed_tokens") == "model.embed_tokens.weight"
    assert hf_name("lm_head") == "lm_head.weight"
    assert hf_name("layers.3.post_attention_norm") == "model.layers.3.post_attention_layernorm.weight"
    assert hf_name("layers.3.gate_proj.bias") == "model.layers.3.mlp.gate_proj.bias"
    assert hf_name("layers.0.k_norm") == "model.layers.0.self_attn.k_norm.weight"
