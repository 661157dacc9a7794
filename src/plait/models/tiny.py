"""Small random models for tests and dry runs, written as normal model folders; torch-free, nothing is downloaded.

The weights are scaled so that sampled text varies, attention scores spread, and a wrong norm, bias or position shows in the logits.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from safetensors.numpy import save_file
from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from tokenizers.trainers import BpeTrainer

from plait.models.hf_config import Family, to_hf_config
from plait.models.tensor_names import hf_name, tensor_shapes
from plait.types.model import ModelConfig, RopeScaling
from plait.types.seeds import derive_seed

SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
END_OF_TURN_ID = 2
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
TRAINING_TEXT = """
system user assistant tool question answer number result
What is the sum of 3 and 4? The answer is 7. What is the product of 12 and 5? The result is 60.
How many letters are in the word banana? There are six letters in the word. Write the number only.
You are a helpful assistant. Think about the question, then give the final answer as a number.
The tool returned 42. Use the calculator to compute the value, and then say what it is.
""".strip()
DEFAULT_VOCAB_SIZE = 384
ATTENTION_GAIN = 1.5
"""Standard deviation of attention scores is about the square of this."""
RESIDUAL_GAIN = 1.5
"""What layers add outweighs a token's own embedding, so that a tied model does not merely repeat its input."""
EMBEDDING_SCALE = 0.25
"""With a normed state of length sqrt(width), logits get a standard deviation near two at width 64."""


def make_tiny_model(directory: Path | str, family: Family = "llama", seed: int = 0, **overrides: Any) -> Path:
    """Write a random model of about 130 k parameters into `directory` (made if need be) and return it as a `Path`.

    `overrides` are fields of `ModelConfig`, such as `num_layers=1`. The same arguments give the same bytes.
    """
    folder = Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    config = msgspec.structs.replace(tiny_config(family), **overrides)
    raw = to_hf_config(config)
    _write_json(folder / "config.json", raw)
    _write_json(folder / "generation_config.json", {key: raw[key] for key in ("eos_token_id", "pad_token_id")})
    tensors = {hf_name(name): _tensor(name, shape, seed) for name, shape in tensor_shapes(config).items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    _tokenizer(min(config.vocab_size, DEFAULT_VOCAB_SIZE)).save(str(folder / "tokenizer.json"))
    _write_json(folder / "tokenizer_config.json", _tokenizer_settings())
    return folder


def tiny_config(family: Family = "llama") -> ModelConfig:
    """Two layers, width 64, four query heads on two key heads, tied embeddings."""
    return ModelConfig(
        family=family,
        vocab_size=DEFAULT_VOCAB_SIZE,
        hidden_size=64,
        intermediate_size=128,
        num_layers=2,
        num_heads=4,
        num_kv_heads=2,
        head_dim=16,
        rms_norm_epsilon=1e-5,
        rope_theta=10_000.0,
        rope_scaling=RopeScaling(),
        tied_embeddings=True,
        max_context_tokens=2048,
        qkv_bias=family == "qwen2",
        qk_norm=family == "qwen3",
        eos_token_ids=(END_OF_TURN_ID,),
        pad_token_id=END_OF_TURN_ID,
    )


def _tensor(name: str, shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Drawn from a generator of its own, so that no tensor depends on which others there are."""
    generator = np.random.Generator(np.random.Philox(derive_seed("tiny", seed, name)))
    if name.endswith(".bias"):
        return generator.normal(0, 0.3, shape).astype(np.float32)
    if len(shape) == 1:
        return generator.uniform(0.5, 1.5, shape).astype(np.float32)
    return (generator.standard_normal(shape) * _scale(name, shape)).astype(np.float32)


def _scale(name: str, shape: tuple[int, ...]) -> float:
    if name in ("embed_tokens", "lm_head"):
        return EMBEDDING_SCALE
    gain = ATTENTION_GAIN if name.endswith(("q_proj", "k_proj")) else RESIDUAL_GAIN
    return gain / shape[1] ** 0.5


@cache
def _tokenizer(vocab_size: int) -> Tokenizer:
    """Byte-level BPE; digits are single tokens. Needs a vocabulary of at least 259 (bytes and special tokens)."""
    if vocab_size < 256 + len(SPECIAL_TOKENS):
        raise ValueError(f"vocab_size is {vocab_size}: a byte-level tokenizer needs at least {256 + len(SPECIAL_TOKENS)}")
    tokenizer = Tokenizer(BPE())
    digits = pre_tokenizers.Digits(individual_digits=True)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
    tokenizer.decoder = decoders.ByteLevel()
    special = [AddedToken(token, special=True, normalized=False) for token in SPECIAL_TOKENS]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = BpeTrainer(vocab_size=vocab_size, special_tokens=special, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(TRAINING_TEXT.splitlines(keepends=True), trainer)
    return tokenizer


def _tokenizer_settings() -> dict[str, Any]:
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<|im_start|>",
        "eos_token": "<|im_end|>",
        "pad_token": "<|im_end|>",
        "unk_token": "<|endoftext|>",
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
    }


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
