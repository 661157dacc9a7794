"""The keys of a sequence's blocks, in order."""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self

from plait.kv.keys import KEY_BYTES, Key, block_key

_IDENTITY = struct.Struct(f"<{KEY_BYTES}s{KEY_BYTES}sII")
IDENTITY_BYTES = _IDENTITY.size


@dataclass(frozen=True, slots=True)
class Link:
    """The block of `num_tokens` tokens at position `start`, right after the block (or root) `parent`."""

    key: Key
    parent: Key
    start: int
    num_tokens: int

    @property
    def end(self) -> int:
        return self.start + self.num_tokens

    def pack(self) -> bytes:
        return _IDENTITY.pack(self.key, self.parent, self.start, self.num_tokens)

    @classmethod
    def unpack(cls, data: bytes | bytearray | memoryview, offset: int = 0) -> Self:
        return cls(*_IDENTITY.unpack_from(data, offset))


def chain(parent: Key, tokens: Sequence[int], block_tokens: int, start: int = 0) -> Iterator[Link]:
    """The blocks of `tokens` from position `start`, where a block begins, right after `parent`; the last may be partial."""
    for begin in range(start, len(tokens), block_tokens):
        piece = tokens[begin : begin + block_tokens]
        link = Link(block_key(parent, piece), parent, begin, len(piece))
        yield link
        parent = link.key


def next_links(parent: Key, tokens: Sequence[int], block_tokens: int, start: int) -> Iterator[Link]:
    """Every block that begins at `start` and would be of use for `tokens`, longest first."""
    for length in range(min(block_tokens, len(tokens) - start), 0, -1):
        yield Link(block_key(parent, tokens[start : start + length]), parent, start, length)
