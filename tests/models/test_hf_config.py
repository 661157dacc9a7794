import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.models.hf_config import Family, parse_config, read_config, to_hf_config
from plait.models.tiny import tiny_config
from plait.types.errors import ModelError
from plait.types.model import ModelConfig, RopeScaling

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 100,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 512,
}
ORIGINAL = st.sampled_from([256, 8192])
POSITIVE = st.floats(1.0, 64.0, allow_nan=False)
SCALINGS = st.one_of(
    st.just(RopeScaling()),
    st.builds(RopeScaling, kind=st.just("linear"), factor=POSITIVE),
    st.builds(RopeScaling, kind=st.just("dynamic"), factor=POSITIVE, original_max_context_tokens=st.just(2048)),
    st.builds(
        RopeScaling,
        kind=st.just("llama3"),
        factor=POSITIVE,
        low_freq_factor=POSITIVE,
        high_freq_factor=POSITIVE,
        original_max_context_tokens=ORIGINAL,
    ),
    st.builds(
        RopeScaling,
        kind=st.just("yarn"),
        factor=POSITIVE,
        beta_fast=POSITIVE,
        beta_slow=POSITIVE,
        attention_factor=POSITIVE,
        original_max_context_tokens=ORIGINAL,
    ),
)


@st.composite
def configs(draw: st.DrawFn) -> ModelConfig:
    families: list[Family] = ["llama", "qwen2", "qwen3"]
    family = draw(st.sampled_from(families))
    bias = family == "qwen2" or draw(st.booleans())
    return ModelConfig(
        family=family,
        vocab_size=draw(st.integers(1, 10**6)),
        hidden_size=draw(st.integers(1, 9999)),
        intermediate_size=draw(st.integers(1, 9999)),
        num_layers=draw(st.integers(1, 99)),
        num_kv_heads=(kv_heads := draw(st.integers(1, 9))),
        num_heads=kv_heads * draw(st.integers(1, 9)),
        head_dim=2 * draw(st.integers(1, 99)),
        rms_norm_epsilon=draw(st.floats(1e-9, 1e-3)),
        rope_theta=draw(st.floats(1.0, 1e7)),
        rope_scaling=draw(SCALINGS),
        tied_embeddings=draw(st.booleans()),
        max_context_tokens=2048,
        qkv_bias=bias,
        output_bias=bias and family != "qwen2",
        mlp_bias=family == "llama" and draw(st.booleans()),
        qk_norm=family == "qwen3",
        eos_token_ids=tuple(draw(st.lists(st.integers(0, 99), unique=True))),
        pad_token_id=draw(st.integers(0, 99)),
    )


@given(configs())
def test_written_config_is_read_back_equal(config: ModelConfig) -> None:
    assert parse_config(json.loads(json.dumps(to_hf_config(config)))) == config


def test_both_spellings_of_rotary_settings_agree() -> None:
    scaling = {"factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 128}
    old = parse_config(LLAMA | {"rope_theta": 5e5, "rope_scaling": scaling | {"type": "llama3"}})
    new = parse_config(LLAMA | {"rope_parameters": scaling | {"rope_type": "llama3", "rope_theta": 5e5}})
    assert old == new
    assert old.rope_theta == 5e5
    assert old.rope_scaling.kind == "llama3"
    assert old.rope_scaling.original_max_context_tokens == 128


def test_absent_settings_take_the_defaults_of_the_family() -> None:
    llama = parse_config(LLAMA)
    assert (llama.num_kv_heads, llama.head_dim, llama.rope_theta, llama.tied_embeddings) == (4, 8, 10_000.0, False)
    qwen2 = parse_config(LLAMA | {"architectures": ["Qwen2ForCausalLM"]})
    assert (qwen2.qkv_bias, qwen2.output_bias, qwen2.qk_norm) == (True, False, False)
    qwen3 = parse_config(LLAMA | {"architectures": None, "model_type": "qwen3"})
    assert (qwen3.family, qwen3.qkv_bias, qwen3.qk_norm, qwen3.head_dim) == ("qwen3", False, True, 128)


def test_end_tokens_come_from_the_generation_config_too(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA | {"eos_token_id": 7}))
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [9, 7, 11], "pad_token_id": 3}))
    config = read_config(tmp_path)
    assert config.eos_token_ids == (9, 7, 11)
    assert config.pad_token_id == 3


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"architectures": ["MixtralForCausalLM"]}, "MixtralForCausalLM.*Qwen3ForCausalLM"),
        ({"use_sliding_window": True, "sliding_window": 64}, "sliding-window"),
        ({"layer_types": ["full_attention", "sliding_attention"]}, "sliding-window"),
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
        ({"quantization_config": {"quant_method": "gptq"}}, "gptq"),
        ({"rope_scaling": {"rope_type": "longrope", "factor": 2.0}}, "longrope"),
        ({"rope_scaling": {"rope_type": "linear"}}, "no factor"),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 2.0}}, "no low_freq_factor"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 2.0, "truncate": False}}, "truncate"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
        ({"hidden_size": None}, "hidden_size = None"),
        ({"num_hidden_layers": "two"}, "num_hidden_layers = 'two'"),
        ({"num_key_value_heads": 3}, "num_key_value_heads 3"),
    ],
)
def test_what_is_not_served_is_named(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ModelError, match=words):
        parse_config(LLAMA | changes)


def test_sliding_window_that_is_off_is_accepted() -> None:
    assert parse_config(LLAMA | {"use_sliding_window": False, "sliding_window": 4096}).family == "llama"


def test_missing_and_torn_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"config\.json does not exist"):
        read_config(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ModelError, match="not valid JSON"):
        read_config(tmp_path)


def test_tiny_configs_differ_by_family() -> None:
    assert tiny_config("qwen2").qkv_bias
    assert tiny_config("qwen3").qk_norm
