"""The tokenizer inside a GGUF file's metadata, as a `tokenizers` object.

- Only byte-level BPE ("gpt2") with a known splitting rule is read; another is an error that names it.
- The splitting rule follows the original model's tokenizer.json (llama.cpp's `tokenizer.ggml.pre` says which), so that
  ids are those the model was trained on.
"""

from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers, processors
from tokenizers.models import BPE

from plait.types.errors import ModelError

QWEN2_PATTERN = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3_PATTERN = QWEN2_PATTERN.replace(r"\p{N}|", r"\p{N}{1,3}|", 1)
SERVED = ("smollm", "gpt-2", "default", "qwen2", "llama-bpe", "llama3")
CONTROL_TOKEN, USER_TOKEN, UNUSED_TOKEN = 3, 4, 5
"""Values of `tokenizer.ggml.token_type` that differ from a normal token's."""
SPECIAL_KEYS = {"bos_token": "bos", "eos_token": "eos", "pad_token": "padding", "unk_token": "unknown"}


def build_tokenizer(metadata: dict[str, Any], path: Path) -> Tokenizer:
    """Raises `ModelError` if the file's tokenizer is of another kind or incomplete. `path` is for messages."""
    _check_kind(metadata, path)
    tokens, kinds = metadata["tokenizer.ggml.tokens"], metadata.get("tokenizer.ggml.token_type")
    kinds = kinds or [1] * len(tokens)
    vocabulary = {token: index for index, token in enumerate(tokens) if kinds[index] != UNUSED_TOKEN}
    merges = [tuple(merge.split(" ", 1)) for merge in metadata["tokenizer.ggml.merges"]]
    rule = metadata["tokenizer.ggml.pre"]
    ignore_merges = rule in ("llama-bpe", "llama3")
    tokenizer = Tokenizer(BPE(vocab=vocabulary, merges=merges, fuse_unk=False, ignore_merges=ignore_merges))
    if rule == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = _splitter(rule)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = _post_processor(metadata)
    added = [(token, kinds[index] == CONTROL_TOKEN) for token, index in vocabulary.items() if kinds[index] in (3, 4)]
    tokenizer.add_tokens([AddedToken(token, special=special, normalized=False) for token, special in added])
    return tokenizer


def tokenizer_settings(metadata: dict[str, Any]) -> dict[str, Any]:
    """tokenizer_config.json: special tokens, chat template."""
    tokens = metadata["tokenizer.ggml.tokens"]
    settings: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
    for name, key in SPECIAL_KEYS.items():
        index = metadata.get(f"tokenizer.ggml.{key}_token_id")
        if index is not None:
            settings[name] = tokens[index]
    if "tokenizer.chat_template" in metadata:
        settings["chat_template"] = metadata["tokenizer.chat_template"]
    return settings


def _check_kind(metadata: dict[str, Any], path: Path) -> None:
    remedy = "Give the model as a folder with tokenizer.json."
    if metadata.get("tokenizer.ggml.model") != "gpt2":
        raise ModelError(f"{path} has tokenizer.ggml.model {metadata.get('tokenizer.ggml.model')!r}, not 'gpt2'.", remedy)
    if metadata.get("tokenizer.ggml.pre") not in SERVED:
        rule = metadata.get("tokenizer.ggml.pre")
        raise ModelError(f"{path} has tokenizer.ggml.pre {rule!r}; served are {', '.join(SERVED)}.", remedy)
    for key in ("tokenizer.ggml.tokens", "tokenizer.ggml.merges"):
        if not metadata.get(key):
            raise ModelError(f"{path} has no {key}.", remedy)


def _splitter(rule: str) -> pre_tokenizers.PreTokenizer:
    if rule in ("gpt-2", "default"):
        return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    if rule == "smollm":
        digits = pre_tokenizers.Digits(individual_digits=True)
        return pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
    pattern = QWEN2_PATTERN if rule == "qwen2" else LLAMA3_PATTERN
    split = pre_tokenizers.Split(Regex(pattern), behavior="isolated", invert=False)
    return pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def _post_processor(metadata: dict[str, Any]) -> processors.PostProcessor:
    """Other programs may ask for special tokens; Plait never does."""
    index = metadata.get("tokenizer.ggml.bos_token_id")
    if index is None or not metadata.get("tokenizer.ggml.add_bos_token", False):
        return processors.ByteLevel(trim_offsets=False)
    bos = metadata["tokenizer.ggml.tokens"][index]
    return processors.TemplateProcessing(single=f"{bos} $A", pair=f"{bos} $A {bos} $B", special_tokens=[(bos, index)])
