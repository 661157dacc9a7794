"""The text of single tokens of one base model."""

from functools import cache

from plait.models.tokenizer import Tokenizer


class TokenTexts:
    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self.bytes_of = cache(self._token_bytes)

    def _token_bytes(self, token: int) -> bytes:
        return self._tokenizer.decode_bytes((token,))

    def text_bytes(self, token: int) -> bytes:
        """What a token adds to an answer: special ones nothing."""
        return b"" if token in self._tokenizer.special_ids else self.bytes_of(token)
