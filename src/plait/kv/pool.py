"""Accounting of a bounded pool of cache blocks: a prefix tree of immutable blocks, the least recently used given up first.

- A block holds up to `block_tokens` tokens of one sequence; only the last block of a stored sequence may hold fewer.
- Blocks never change once stored. A sequence that goes on from a partial block stores a new block beside it.
- A block with children or pins is never evicted; so what is stored is always reachable from its root.
- Using a block uses all before it in its sequence, so in order of use every block comes before its parent.
- The pool is a cache: losing a block means computing it again, never a wrong result.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

from plait.kv.block_log import BlockLog
from plait.kv.keys import Key, block_key

BLOCK_TOKENS = 16
"""Tokens in a block, in every tier."""


@dataclass(slots=True, eq=False)
class Block:
    index: int
    key: Key
    parent: Key
    tokens: tuple[int, ...]
    children: set[Key] = field(default_factory=set)
    pins: int = 0


@dataclass(frozen=True, slots=True)
class Piece:
    """`num_tokens` tokens at the start of block `index`, which begins at position `start`."""

    index: int
    start: int
    num_tokens: int


@dataclass(frozen=True, slots=True)
class Match:
    """The longest cached prefix: its pieces and the keys of their blocks, in order."""

    pieces: tuple[Piece, ...]
    keys: tuple[Key, ...]
    num_tokens: int
    end: Key | None
    """The last block's key, if the match takes up all of that block."""


class BlockPool:
    """Decides where cached tokens lie; the tensors are the engine's."""

    log: BlockLog | None = None
    """Told of what comes and goes."""

    def __init__(self, num_blocks: int, block_tokens: int) -> None:
        self.num_blocks, self.block_tokens = num_blocks, block_tokens
        self._free = list(range(num_blocks - 1, -1, -1))
        self._blocks: OrderedDict[Key, Block] = OrderedDict()
        self._roots: dict[Key, set[Key]] = {}
        self.num_evicted = 0
        """Blocks given up for others so far."""

    @property
    def num_free(self) -> int:
        return len(self._free)

    @property
    def num_stored(self) -> int:
        return len(self._blocks)

    @property
    def num_pinned(self) -> int:
        return sum(block.pins > 0 for block in self._blocks.values())

    def lookup(self, root: Key, tokens: Sequence[int]) -> Match:
        """The longest stored prefix of `tokens`, to the token; counts as a use of what it finds."""
        path: list[Block] = []
        pieces: list[Piece] = []
        num_tokens, parent = 0, root
        while num_tokens < len(tokens):
            wanted = tuple(tokens[num_tokens : num_tokens + self.block_tokens])
            block, length = self._best_child(parent, wanted)
            if block is None:
                break
            path.append(block)
            pieces.append(Piece(block.index, num_tokens, length))
            num_tokens, parent = num_tokens + length, block.key
            if length < self.block_tokens:
                break
        self._use(path)
        end = parent if path and pieces[-1].num_tokens == len(path[-1].tokens) else None
        return Match(tuple(pieces), tuple(block.key for block in path), num_tokens, end)

    def _best_child(self, parent: Key, wanted: tuple[int, ...]) -> tuple[Block | None, int]:
        """The child with the longest common prefix, and its length; among equals the one that ends there."""
        if len(wanted) == self.block_tokens:
            whole = self._blocks.get(block_key(parent, wanted))
            if whole is not None:
                return whole, len(wanted)
        children = [self._blocks[key] for key in self._children(parent)]
        ranked = [(_common_prefix(block.tokens, wanted), -len(block.tokens), block.key) for block in children]
        length, _, key = max(ranked, default=(0, 0, parent))
        return (self._blocks[key], length) if length else (None, 0)

    def _children(self, parent: Key) -> set[Key]:
        block = self._blocks.get(parent)
        return block.children if block is not None else self._roots.get(parent, set())

    def _use(self, path: Sequence[Block]) -> None:
        for block in reversed(path):
            self._blocks.move_to_end(block.key)

    def store(self, root: Key, tokens: Sequence[int]) -> tuple[list[Piece], Key | None]:
        """Make blocks for what is not stored yet; return the pieces to be filled now, and the last block's key.

        Only a prefix is stored (perhaps nothing: None) when everything else is pinned.
        """
        path: list[Block] = []
        created: list[Piece] = []
        for start in range(0, len(tokens), self.block_tokens):
            piece = tuple(tokens[start : start + self.block_tokens])
            parent = path[-1].key if path else root
            block = self._blocks.get(block_key(parent, piece))
            if block is None:
                block = self._make(root, parent, piece)
                if block is None:
                    break
                created.append(Piece(block.index, start, len(piece)))
            block.pins += 1  # making room for the next block must not take this one
            path.append(block)
        for block in path:
            block.pins -= 1
        self._use(path)
        return created, path[-1].key if path else None

    def _make(self, root: Key, parent: Key, tokens: tuple[int, ...]) -> Block | None:
        index = self._take()
        if index is None:
            return None
        block = Block(index, block_key(parent, tokens), parent, tokens)
        self._blocks[block.key] = block
        siblings = self._roots.setdefault(root, set()) if parent == root else self._blocks[parent].children
        siblings.add(block.key)
        if self.log is not None:
            self.log.came(block.key)
        return block

    def _take(self) -> int | None:
        """A free block, if need be the least recently used one that nothing hangs on."""
        if not self._free:
            victim = next((block for block in self._blocks.values() if not block.children and not block.pins), None)
            if victim is None:
                return None
            self._remove(victim)
            self.num_evicted += 1
        return self._free.pop()

    def _remove(self, block: Block) -> None:
        del self._blocks[block.key]
        self._free.append(block.index)
        if self.log is not None:
            self.log.went(block.key)
        siblings = self._children(block.parent)
        siblings.discard(block.key)
        if not siblings:
            self._roots.pop(block.parent, None)

    def pin(self, keys: Sequence[Key]) -> None:
        """Keep the blocks until as many calls of `unpin`. They must be stored."""
        for key in keys:
            self._blocks[key].pins += 1

    def unpin(self, keys: Sequence[Key]) -> None:
        for key in keys:
            self._blocks[key].pins -= 1

    @property
    def indices(self) -> list[int]:
        """Of the blocks that are stored."""
        return [block.index for block in self._blocks.values()]

    def clear(self) -> None:
        """Lose everything; nothing may be pinned."""
        assert not self.num_pinned, "a block is still pinned"
        for block in list(self._blocks.values()):  # In order of use, so children go before their parents.
            self._remove(block)

    def release(self, key: Key, keep_tokens: int = 0) -> None:
        """Free a stored sequence from its last block upwards, as far as nobody else shares it; fine if it is gone.

        Blocks that hold nothing beyond the first `keep_tokens` tokens stay until room is needed.
        """
        end = self._end_position(key)
        block = self._blocks.get(key)
        while block is not None and not block.children and not block.pins and end > keep_tokens:
            end -= len(block.tokens)
            self._remove(block)
            block = self._blocks.get(block.parent)

    def _end_position(self, key: Key) -> int:
        total, block = 0, self._blocks.get(key)
        while block is not None:
            total += len(block.tokens)
            block = self._blocks.get(block.parent)
        return total

    def check_invariants(self) -> None:
        """Raise AssertionError if accounting does not add up."""
        used = [block.index for block in self._blocks.values()]
        assert sorted(used + self._free) == list(range(self.num_blocks)), "blocks are lost or held twice"
        assert all(self._roots.values()), "a root without blocks is kept"
        order = {key: place for place, key in enumerate(self._blocks)}
        for key, block in self._blocks.items():
            assert key in self._children(block.parent), "a block is not reachable from its parent"
            assert all(child in self._blocks for child in block.children), "a child is gone"
            assert block.pins >= 0, "unpinned more often than pinned"
            assert order[key] < order.get(block.parent, len(order)), "a block was used without its parent"


def _common_prefix(left: tuple[int, ...], right: tuple[int, ...]) -> int:
    length = 0
    for a, b in zip(left, right, strict=False):
        if a != b:
            break
        length += 1
    return length
