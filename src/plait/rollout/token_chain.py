"""The keys of the cache blocks of a generation, kept up as it grows: each block is hashed once. Pure."""

from collections.abc import Sequence
from itertools import islice

from plait.kv.chain import chain
from plait.kv.keys import Key


class TokenChain:
    """Of all tokens but the last, which is always computed. `root` is the key before the first (`kv.keys.root_key`)."""

    def __init__(self, root: Key, block_tokens: int) -> None:
        self._root, self._block_tokens = root, block_tokens
        self._num_whole = 0
        self.keys: list[Key] = []
        """The last block may be partial."""
        self.num_tokens = 0

    def grow(self, context: Sequence[int], drawn: Sequence[int]) -> None:
        """To these tokens, which begin with those that it had."""
        num_tokens = max(0, len(context) + len(drawn) - 1)
        if num_tokens == self.num_tokens:
            return
        start = self._num_whole * self._block_tokens
        rest = (*context[start:], *islice(drawn, max(0, start - len(context)), None))[:-1]
        del self.keys[self._num_whole :]
        self.keys += [link.key for link in chain(self.keys[-1] if self.keys else self._root, rest, self._block_tokens)]
        self.num_tokens, self._num_whole = num_tokens, num_tokens // self._block_tokens

    def copy(self) -> "TokenChain":
        twin = TokenChain(self._root, self._block_tokens)
        twin.keys, twin.num_tokens, twin._num_whole = self.keys.copy(), self.num_tokens, self._num_whole
        return twin

    def tokens(self, num_blocks: int) -> int:
        """In so many blocks from the first on."""
        return min(num_blocks * self._block_tokens, self.num_tokens)
