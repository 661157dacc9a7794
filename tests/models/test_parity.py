"""Logits equal transformers' to 1e-4 in float32."""

from pathlib import Path
from typing import Any

import pytest
import torch

from plait.models.catalogue import find
from plait.models.tokenizer import Tokenizer
from plait.types.errors import ModelError
from plait.types.messages import Message
from tests.models.reference import decoder_logits, load_decoder, random_tokens

TOLERANCE = 1e-4
SHAPE: dict[str, Any] = {
    "vocab_size": 160,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "initializer_range": 0.3,
}
THETA = {"rope_theta": 500.0}
CASES: dict[str, dict[str, Any]] = {
    "llama": {},
    "llama-tied": {"tie_word_embeddings": True},
    "llama-multi-query": {"num_key_value_heads": 1, "head_dim": 20},
    "llama-biases": {"attention_bias": True, "mlp_bias": True, "rms_norm_eps": 1e-5},
    "llama-linear": {"rope_parameters": THETA | {"rope_type": "linear", "factor": 4.0}},
    "llama-dynamic": {"rope_parameters": THETA | {"rope_type": "dynamic", "factor": 2.0}},
    "llama-llama3": {
        "rope_parameters": THETA
        | {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 32,
        }
    },
    "llama-yarn": {"rope_parameters": THETA | {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}},
    "qwen2": {},
    "qwen2-tied-yarn": {
        "tie_word_embeddings": True,
        "rope_parameters": THETA
        | {
            "rope_type": "yarn",
            "factor": 2.0,
            "original_max_position_embeddings": 32,
            "beta_fast": 16.0,
            "mscale": 0.7,
            "mscale_all_dim": 1.3,
        },
    },
    "qwen3": {"head_dim": 16},
    "qwen3-tied-biases": {"head_dim": 16, "tie_word_embeddings": True, "attention_bias": True},
}


@pytest.fixture(scope="module", params=CASES)
def saved_model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    """A random model by transformers, biases and norms made to matter, and the folder it was saved to."""
    return build_model(request.param.split("-")[0], CASES[request.param], tmp_path_factory.mktemp(request.param))


def build_model(family: str, settings: dict[str, Any], folder: Path) -> tuple[Any, Path]:
    import transformers

    config_class = {"llama": "LlamaConfig", "qwen2": "Qwen2Config", "qwen3": "Qwen3Config"}[family]
    torch.manual_seed(0)
    config = getattr(transformers, config_class)(**SHAPE | settings)
    config._attn_implementation = "eager"
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter.normal_(0, 0.3)
            elif "norm" in name:
                parameter.uniform_(0.5, 1.5)
    model.save_pretrained(folder)
    return model, folder


def test_logits_equal_those_of_transformers(saved_model: tuple[Any, Path]) -> None:
    model, folder = saved_model
    tokens = random_tokens(SHAPE["vocab_size"], length=64)
    with torch.no_grad():
        expected = model(tokens).logits
    assert expected.std() > 0.3
    torch.testing.assert_close(decoder_logits(load_decoder(folder), tokens), expected, atol=TOLERANCE, rtol=0)


def test_sharded_folder_gives_the_same_logits(tmp_path: Path) -> None:
    model, folder = build_model("llama", {}, tmp_path / "whole")
    model.save_pretrained(tmp_path / "sharded", max_shard_size="40KB")
    assert (tmp_path / "sharded" / "model.safetensors.index.json").exists()
    tokens = random_tokens(SHAPE["vocab_size"])
    assert torch.equal(decoder_logits(load_decoder(tmp_path / "sharded"), tokens), decoder_logits(load_decoder(folder), tokens))


@pytest.mark.smollm2
def test_smollm2_logits_equal_those_of_transformers() -> None:
    from transformers import AutoModelForCausalLM

    folder = smollm2_folder()
    prompt = Tokenizer.load(folder).render_prompt([Message("user", "What is 17 + 25? Answer with a number.")])
    tokens = torch.tensor([prompt])
    with torch.no_grad():
        expected = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()(tokens).logits
    torch.testing.assert_close(decoder_logits(load_decoder(folder), tokens), expected, atol=TOLERANCE, rtol=0)


def smollm2_folder() -> Path:
    try:
        return find("smollm2-135m-instruct")
    except ModelError as error:
        pytest.skip(str(error))
