"""The bytes each token stands for.

Two kinds of tokenizer have them: byte-level BPE (GPT-2, Llama 3, Qwen), where each character of a token names one byte, and
SentencePiece with byte fallback (Llama 2), where U+2581 is a space and `<0x0A>` a byte.
"""

import json
import re
from functools import cache

from tokenizers import Tokenizer

from plait.types.errors import ModelError

SPACE_MARK = "▁"
BYTE_TOKEN = re.compile(r"<0x([0-9A-F]{2})>")


def token_bytes_table(tokenizer: Tokenizer) -> list[bytes]:
    """Bytes by token id; ids without a token give b"". Raises `ModelError` for another kind of tokenizer."""
    kinds = _decoder_kinds(json.loads(tokenizer.to_str()).get("decoder"))
    added = {index: token.content for index, token in tokenizer.get_added_tokens_decoder().items()}
    vocabulary = tokenizer.get_vocab(with_added_tokens=True)
    table = [b""] * (max(vocabulary.values(), default=-1) + 1)
    for token, index in vocabulary.items():
        if index in added:
            table[index] = added[index].encode()
        else:
            table[index] = _byte_level(token) if "ByteLevel" in kinds else _sentence_piece(token, kinds)
    return table


def _decoder_kinds(decoder: dict | None) -> frozenset[str]:
    if decoder is None:
        return frozenset()
    nested = decoder.get("decoders", ())
    return frozenset({decoder["type"]}.union(*(_decoder_kinds(inner) for inner in nested)))


def _byte_level(token: str) -> bytes:
    return bytes(byte_of_character()[character] for character in token)


def _sentence_piece(token: str, kinds: frozenset[str]) -> bytes:
    if not kinds & {"ByteFallback", "Metaspace"}:
        raise ModelError(
            f"The tokenizer decodes by {', '.join(sorted(kinds)) or 'nothing'}.", "Served: byte-level and SentencePiece."
        )
    match = BYTE_TOKEN.fullmatch(token)
    return bytes([int(match[1], 16)]) if match else token.replace(SPACE_MARK, " ").encode()


@cache
def byte_of_character() -> dict[str, int]:
    """GPT-2's table (`bytes_to_unicode`): printable Latin-1 names itself, the other bytes are shifted to U+0100 and on."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = (byte for byte in range(256) if byte not in printable)
    return {chr(byte): byte for byte in printable} | {chr(0x100 + index): byte for index, byte in enumerate(others)}
