from pathlib import Path

import pytest
import torch

from plait.models.hf_config import Family
from plait.models.tiny import make_tiny_model
from plait.models.tokenizer import Tokenizer
from plait.models.weights import base_digest, load_model
from plait.types.messages import Message
from tests.models.reference import decoder_logits, load_decoder


def test_same_arguments_give_the_same_bytes(tmp_path: Path) -> None:
    first, second = make_tiny_model(tmp_path / "a", seed=3), make_tiny_model(tmp_path / "b", seed=3)
    names = sorted(path.name for path in first.iterdir())
    assert names == ["config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"]
    assert all((first / name).read_bytes() == (second / name).read_bytes() for name in names)
    assert base_digest(load_model(make_tiny_model(tmp_path / "c", seed=4))[1]) != base_digest(load_model(first)[1])


def test_shape_can_be_chosen(tmp_path: Path) -> None:
    config, weights = load_model(
        make_tiny_model(tmp_path, "qwen2", num_layers=1, hidden_size=32, tied_embeddings=False, vocab_size=300)
    )
    assert (config.num_layers, config.hidden_size, config.family) == (1, 32, "qwen2")
    assert weights["lm_head"].shape == (300, 32)
    assert Tokenizer.load(tmp_path).vocab_size == 300
    with pytest.raises(ValueError, match="vocab_size is 200"):
        make_tiny_model(tmp_path, vocab_size=200)


def test_the_tokenizer_has_single_digits_and_a_chat_template(tmp_path: Path) -> None:
    tokenizer = Tokenizer.load(make_tiny_model(tmp_path))
    assert len(tokenizer.encode("2025")) == 4
    assert len(tokenizer.encode("What is the sum of")) < 9
    assert tokenizer.encode("<|endoftext|><|im_start|><|im_end|>") == (0, 1, 2)
    assert (
        tokenizer.decode(tokenizer.render_prompt([Message("user", "Hi")]))
        == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3"])
def test_next_token_is_uncertain_and_depends_on_far_context(tmp_path: Path, family: Family) -> None:
    decoder = load_decoder(make_tiny_model(tmp_path, family))
    tokens = torch.randint(0, 384, (8, 48), generator=torch.Generator().manual_seed(0))
    logprobs = decoder_logits(decoder, tokens).log_softmax(-1)
    entropy = -(logprobs.exp() * logprobs).sum(-1)
    assert 1.5 < entropy.mean() < 5.0
    repeated = logprobs.gather(-1, tokens[..., None]).exp().mean()
    assert repeated < 0.2
    changed = tokens.clone()
    changed[:, 0] = (changed[:, 0] + 1) % 384
    assert (decoder_logits(decoder, changed).log_softmax(-1)[:, -1] - logprobs[:, -1]).abs().mean() > 0.01
