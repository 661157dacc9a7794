import json
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import Tensor

from plait.lora.initial import pristine_adapter
from plait.lora.merge import merge_into_base
from plait.lora.modules import module_shapes
from plait.lora.peft_config import parse_peft_config, peft_config
from plait.lora.peft_format import (
    WEIGHTS_FILE,
    adapter_digest,
    export_adapter,
    from_peft_tensors,
    import_adapter,
    to_peft_tensors,
)
from plait.models.tiny import make_tiny_model, tiny_config
from plait.models.weights import load_model
from plait.state.tensor_file import digest_encoded
from plait.types.errors import AdapterError
from plait.types.lora import LoraConfig

CONFIG = tiny_config()
LORA = LoraConfig(rank=4, alpha=10, target_modules=("q_proj", "down_proj", "lm_head"))
MODULES = tuple(module_shapes(CONFIG))


def adapter(lora: LoraConfig = LORA) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(3)
    return {name: torch.randn(t.shape, generator=generator) for name, t in pristine_adapter(CONFIG, lora).items()}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    export_adapter(tmp_path, LORA, adapter(), "some/base")
    return tmp_path


def edit_config(folder: Path, **changes: Any) -> None:
    path = folder / "adapter_config.json"
    raw = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({key: value for key, value in raw.items() if value != "REMOVED"}))


def edit_weights(folder: Path, **changes: Tensor | None) -> None:
    stored = load_file(folder / WEIGHTS_FILE) | {name.replace("__", "."): value for name, value in changes.items()}
    save_file({name: value for name, value in stored.items() if value is not None}, folder / WEIGHTS_FILE)


def test_export_then_import_gives_the_same_bits(folder: Path) -> None:
    lora, tensors = import_adapter(folder, CONFIG, digest=adapter_digest(adapter()))
    assert lora == LORA
    assert tensors.keys() == adapter().keys()
    assert all(torch.equal(tensor, tensors[name]) for name, tensor in adapter().items())


def test_names_are_those_of_peft(folder: Path) -> None:
    stored = load_file(folder / WEIGHTS_FILE)
    assert stored["base_model.model.model.layers.1.self_attn.q_proj.lora_A.weight"].shape == (4, 64)
    assert stored["base_model.model.model.layers.0.mlp.down_proj.lora_B.weight"].shape == (64, 4)
    assert stored["base_model.model.lm_head.lora_B.weight"].shape == (CONFIG.vocab_size, 4)


@given(
    rank=st.integers(1, 64),
    alpha=st.floats(0.25, 512, allow_nan=False),
    modules=st.lists(st.sampled_from(MODULES), min_size=1, unique=True),
)
def test_config_survives_the_format(rank: int, alpha: float, modules: list[str]) -> None:
    read = parse_peft_config(json.loads(json.dumps(peft_config(LoraConfig(rank, alpha, tuple(modules))))))
    assert (read.rank, read.alpha, read.scaling) == (rank, alpha, alpha / rank)
    assert set(read.target_modules) == set(modules)


def test_digest_is_that_of_the_stored_file_and_sees_one_bit(folder: Path) -> None:
    tensors = adapter()
    digest = adapter_digest(tensors)
    assert digest == digest_encoded((folder / WEIGHTS_FILE).read_bytes())
    assert digest == adapter_digest(dict(reversed(tensors.items())))
    tensors["lm_head.A"][0, 0] = torch.nextafter(tensors["lm_head.A"][0, 0], torch.tensor(9.0))
    assert digest != adapter_digest(tensors)


def test_wrong_digest_is_refused(folder: Path) -> None:
    edit_weights(folder, base_model__model__lm_head__lora_A__weight=torch.zeros(4, 64))
    with pytest.raises(AdapterError, match="has digest"):
        import_adapter(folder, CONFIG, digest=adapter_digest(adapter()))


def test_unused_missing_and_misshaped_tensors_are_named(folder: Path) -> None:
    name = "base_model.model.lm_head.lora_A.weight"
    for change, words in [(torch.zeros(5, 64), r"shape \(5, 64\)"), (None, f"lacks {name}")]:
        edit_weights(folder, base_model__model__lm_head__lora_A__weight=change)
        with pytest.raises(AdapterError, match=words):
            import_adapter(folder, CONFIG)
    export_adapter(folder, LORA, adapter())
    edit_weights(folder, base_model__model__model__layers__9__mlp__up_proj__lora_A__weight=torch.zeros(4, 64))
    with pytest.raises(AdapterError, match=r"layers\.9\.mlp\.up_proj.* used by nothing"):
        import_adapter(folder, CONFIG)


def test_prefix_that_matches_nothing_is_an_error() -> None:
    stored = {name.removeprefix("base_model.model."): tensor for name, tensor in to_peft_tensors(adapter()).items()}
    with pytest.raises(AdapterError, match="lacks"):
        from_peft_tensors(stored, CONFIG, LORA)


def test_copied_base_weight_is_refused(folder: Path) -> None:
    edit_weights(folder, base_model__model__lm_head__base_layer__weight=torch.zeros(CONFIG.vocab_size, 64))
    with pytest.raises(AdapterError, match="save_embedding_layers=False"):
        import_adapter(folder, CONFIG)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("lora_alpha", "REMOVED"),
        ("lora_alpha", 0),
        ("r", "REMOVED"),
        ("use_rslora", True),
        ("use_dora", True),
        ("rank_pattern", {"q_proj": 8}),
        ("alpha_pattern", {"q_proj": 8}),
        ("bias", "all"),
        ("modules_to_save", ["norm"]),
        ("layers_to_transform", [1]),
        ("init_lora_weights", "pissa"),
        ("peft_type", "LOHA"),
        ("target_modules", ".*_proj"),
        ("target_modules", []),
        ("a_setting_of_the_future", 3),
    ],
)
def test_settings_that_would_change_the_adapter_are_refused_by_name(folder: Path, key: str, value: Any) -> None:
    edit_config(folder, **{key: value})
    with pytest.raises(AdapterError, match=key):
        import_adapter(folder, CONFIG)


def test_torn_files_are_named(folder: Path) -> None:
    weights = (folder / WEIGHTS_FILE).read_bytes()
    (folder / WEIGHTS_FILE).write_bytes(weights[:-100])
    with pytest.raises(AdapterError, match="adapter_model"):
        import_adapter(folder, CONFIG)
    (folder / "adapter_config.json").write_text("{")
    with pytest.raises(AdapterError, match="adapter_config"):
        import_adapter(folder, CONFIG)


def test_half_precision_adapters_are_read_and_never_written(folder: Path) -> None:
    halves = {name: tensor.to(torch.bfloat16) for name, tensor in adapter().items()}
    with pytest.raises(AdapterError, match="bfloat16"):
        to_peft_tensors(halves)
    save_file({name: tensor.to(torch.bfloat16) for name, tensor in to_peft_tensors(adapter()).items()}, folder / WEIGHTS_FILE)
    assert all(torch.equal(tensor, halves[name].float()) for name, tensor in import_adapter(folder, CONFIG)[1].items())


def test_merge_unties_only_for_the_unembedding(folder: Path, tmp_path: Path) -> None:
    base = make_tiny_model(tmp_path / "base")
    before = load_model(base)[1]
    config, after = load_model(merge_into_base(base, folder, tmp_path / "merged"))
    tensors = adapter()
    assert not config.tied_embeddings
    assert torch.equal(after["embed_tokens"], before["embed_tokens"])
    expected = before["embed_tokens"] + LORA.scaling * tensors["lm_head.B"] @ tensors["lm_head.A"]
    torch.testing.assert_close(after["lm_head"], expected)
    assert torch.equal(after["layers.0.k_proj"], before["layers.0.k_proj"])
    assert (tmp_path / "merged" / "tokenizer.json").exists()
    with pytest.raises(AdapterError, match="exists"):
        merge_into_base(base, folder, tmp_path / "merged")
    assert not list(tmp_path.glob(".tmp-*"))
