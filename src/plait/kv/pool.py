"""Accounting of a bounded pool of cache blocks: a prefix tree of immutable blocks with least-recently-used eviction.

- A block holds up to `block_tokens` tokens of one sequence; only the last block of a stored sequence may hold fewer.
- Blocks never change once stored. A sequence that goes on from a partial block stores a new block beside it.
- A block with children or pins is never evicted; so what is stored is always reachable from its root.
- The pool is a cache: losing a block means computing it again, never a wrong result.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

from plait.kv.keys import Key, block_key


@dataclass(slots=True)
class Block:
    index: int
    key: Key
    parent: Key
    tokens: tuple[int, ...]
    children: set[Key] = field(default_factory=set)
    pins: int = 0


@dataclass(frozen=True, slots=True)
class Piece:
    """`num_tokens` cached tokens at the start of block `index`, which begins at position `start`."""

    index: int
    start: int
    num_tokens: int


@dataclass(frozen=True, slots=True)
class Match:
    """The longest cached prefix: its pieces in order, and the key of the last whole block."""

    pieces: tuple[Piece, ...]
    num_tokens: int
    keys: tuple[Key, ...]


class BlockPool:
    """Decides where cached tokens lie; the tensors are the engine's."""

    def __init__(self, num_blocks: int, block_tokens: int) -> None:
        self.num_blocks, self.block_tokens = num_blocks, block_tokens
        self._free = list(range(num_blocks - 1, -1, -1))
        self._blocks: dict[Key, Block] = {}
        self._roots: dict[Key, set[Key]] = {}
        self._evictable: OrderedDict[Key, None] = OrderedDict()

    @property
    def num_free(self) -> int:
        return len(self._free)

    @property
    def num_stored(self) -> int:
        return len(self._blocks)

    @property
    def num_pinned(self) -> int:
        return sum(block.pins > 0 for block in self._blocks.values())

    def blocks_needed(self, num_tokens: int) -> int:
        return -(-num_tokens // self.block_tokens)

    def lookup(self, root: Key, tokens: Sequence[int]) -> Match:
        """The longest stored prefix of `tokens`, to the token; touches what it finds."""
        parent, start, pieces, keys = root, 0, [], []
        while start < len(tokens):
            wanted = tuple(tokens[start : start + self.block_tokens])
            key = block_key(parent, wanted)
            block = self._blocks.get(key) if len(wanted) == self.block_tokens else None
            if block is None:
                partial = self._longest_partial(parent, start, wanted)
                if partial is not None:
                    pieces.append(partial[0])
                    keys.append(partial[1])
                    start += partial[0].num_tokens
                break
            pieces.append(Piece(block.index, start, self.block_tokens))
            keys.append(key)
            parent, start = key, start + self.block_tokens
        for key in reversed(keys):
            self._touch(key)
        return Match(tuple(pieces), start, tuple(keys))

    def _longest_partial(self, parent: Key, start: int, wanted: tuple[int, ...]) -> tuple[Piece, Key] | None:
        best: tuple[int, Key] | None = None
        for key in self._children(parent):
            length = _common_prefix(self._blocks[key].tokens, wanted)
            if length and (best is None or (length, key) > best):
                best = (length, key)
        return None if best is None else (Piece(self._blocks[best[1]].index, start, best[0]), best[1])

    def _children(self, parent: Key) -> set[Key]:
        block = self._blocks.get(parent)
        return block.children if block is not None else self._roots.get(parent, set())

    def can_store(self, num_tokens: int) -> bool:
        """Whether so many tokens fit if everything evictable went (a bound: shared prefixes need less)."""
        return self.blocks_needed(num_tokens) <= self.num_blocks - self.num_pinned

    def store(self, root: Key, tokens: Sequence[int]) -> tuple[list[Piece], Key]:
        """Make blocks for what is not stored yet; return the pieces to be filled now, and the last block's key.

        Returns fewer blocks than asked for when everything else is pinned: a shorter prefix is stored.
        """
        parent, created = root, []
        pinned: list[Key] = []
        for start in range(0, len(tokens), self.block_tokens):
            piece = tuple(tokens[start : start + self.block_tokens])
            key = block_key(parent, piece)
            if key not in self._blocks:
                index = self._take()
                if index is None:
                    break
                self._link(Block(index, key, parent, piece), root)
                created.append(Piece(index, start, len(piece)))
            self.pin([key])
            pinned.append(key)
            parent = key
        self.unpin(pinned)
        return created, parent

    def _link(self, block: Block, root: Key) -> None:
        self._blocks[block.key] = block
        if block.parent == root:
            self._roots.setdefault(root, set()).add(block.key)
        else:
            self._blocks[block.parent].children.add(block.key)
            self._evictable.pop(block.parent, None)

    def _take(self) -> int | None:
        if not self._free and self._evictable:
            self._remove(next(iter(self._evictable)))
        return self._free.pop() if self._free else None

    def _remove(self, key: Key) -> None:
        block = self._blocks.pop(key)
        self._evictable.pop(key, None)
        self._free.append(block.index)
        siblings = self._children(block.parent)
        siblings.discard(key)
        parent = self._blocks.get(block.parent)
        if parent is not None:
            self._offer(parent)
        elif not siblings:
            self._roots.pop(block.parent, None)

    def _offer(self, block: Block) -> None:
        """Make a block evictable if nothing hangs on it; the newest offer goes last."""
        if not block.children and not block.pins:
            self._evictable[block.key] = None
            self._evictable.move_to_end(block.key)

    def _touch(self, key: Key) -> None:
        if key in self._evictable:
            self._evictable.move_to_end(key)

    def pin(self, keys: Sequence[Key]) -> None:
        """Keep the blocks until `unpin`."""
        for key in keys:
            self._blocks[key].pins += 1
            self._evictable.pop(key, None)

    def unpin(self, keys: Sequence[Key]) -> None:
        for key in reversed(keys):
            block = self._blocks[key]
            block.pins -= 1
            self._offer(block)

    def release(self, key: Key, root_tokens: int = 0) -> None:
        """Free a stored sequence from its last block upwards, as far as nobody else shares it.

        The first `root_tokens` tokens (a group's prompt) stay as long as memory allows.
        """
        depth = self._depth_tokens(key)
        while key in self._evictable and depth - len(self._blocks[key].tokens) >= root_tokens:
            block = self._blocks[key]
            depth -= len(block.tokens)
            self._remove(key)
            key = block.parent

    def _depth_tokens(self, key: Key) -> int:
        total = 0
        while key in self._blocks:
            total += len(self._blocks[key].tokens)
            key = self._blocks[key].parent
        return total

    def check_invariants(self) -> None:
        """Raise AssertionError if accounting does not add up."""
        used = [block.index for block in self._blocks.values()]
        assert sorted(used + self._free) == list(range(self.num_blocks)), "blocks are lost or held twice"
        for key, block in self._blocks.items():
            assert key in self._children(block.parent), "a block is not reachable from its parent"
            assert all(child in self._blocks for child in block.children), "a child is gone"
            assert block.pins >= 0, "unpinned more often than pinned"
            assert (key in self._evictable) == (not block.children and not block.pins), "eviction list is out of step"


def _common_prefix(left: tuple[int, ...], right: tuple[int, ...]) -> int:
    length = 0
    for a, b in zip(left, right, strict=False):
        if a != b:
            break
        length += 1
    return length
