"""The pool against a plain dictionary that spells every stored path out, and its rules one by one."""

from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from plait.kv.keys import block_key
from plait.kv.pool import BlockPool, Match, Piece

BLOCK = 3
ROOTS = (b"root-of-tenant-a", b"root-of-tenant-b")
SEQUENCES = st.lists(st.integers(0, 1), max_size=11).map(tuple)
"""Two tokens only, so that sequences share prefixes often."""

Path = tuple[bytes, tuple[int, ...]]
"""A root and all tokens from the start to the end of a block."""


@dataclass
class Entry:
    index: int
    used: int
    pins: int = 0


class Oracle:
    """What the pool must hold, with whole paths for keys and clock times for the order of use."""

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks, self.clock = num_blocks, 0
        self.entries: dict[Path, Entry] = {}

    def ancestors(self, path: Path) -> list[Path]:
        root, tokens = path
        return [(root, tokens[:end]) for end in range(BLOCK, len(tokens), BLOCK)] + [path]

    def children(self, path: Path) -> list[Path]:
        return [other for other in self.entries if other != path and path in self.ancestors(other)]

    def is_free_to_go(self, path: Path) -> bool:
        return not self.children(path) and not self.entries[path].pins

    def use(self, path: Path) -> None:
        self.clock += 1
        for place in self.ancestors(path):
            self.entries[place].used = self.clock

    def common_prefix(self, root: bytes, tokens: tuple[int, ...]) -> int:
        lengths = [common(tokens, path[1]) for path in self.entries if path[0] == root]
        return max(lengths, default=0)

    def victim(self) -> Path | None:
        free = [path for path in self.entries if self.is_free_to_go(path)]
        return min(free, key=lambda path: self.entries[path].used, default=None)


def common(left: tuple[int, ...], right: tuple[int, ...]) -> int:
    return next((i for i, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), min(len(left), len(right)))


def blocks_of(root: bytes, tokens: tuple[int, ...]) -> list[Path]:
    return [(root, tokens[: start + BLOCK]) for start in range(0, len(tokens), BLOCK)]


def key_of(path: Path) -> bytes:
    root, tokens = path
    key = root
    for start in range(0, len(tokens), BLOCK):
        key = block_key(key, tokens[start : start + BLOCK])
    return key


class PoolMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.pool, self.oracle = BlockPool(5, BLOCK), Oracle(5)
        self.pinned: list[list[Path]] = []

    @rule(root=st.sampled_from(ROOTS), tokens=SEQUENCES)
    def store(self, root: bytes, tokens: tuple[int, ...]) -> None:
        created, end = self.pool.store(root, tokens)
        expected_created, path = self.oracle_store(root, tokens)
        assert [(piece.start, piece.num_tokens) for piece in created] == [(s, n) for s, n in expected_created]
        assert end == (key_of(path) if path else None)
        for piece in created:
            stored = (root, tokens[: piece.start + piece.num_tokens])
            assert all(entry.index != piece.index for entry in self.oracle.entries.values()), "a block in use was given away"
            self.oracle.entries[stored].index = piece.index

    def oracle_store(self, root: bytes, tokens: tuple[int, ...]) -> tuple[list[tuple[int, int]], Path | None]:
        created: list[tuple[int, int]] = []
        done: list[Path] = []
        for path in blocks_of(root, tokens):
            if path not in self.oracle.entries:
                if len(self.oracle.entries) == self.oracle.num_blocks:
                    candidates = [p for p in self.oracle.entries if self.oracle.is_free_to_go(p) and p not in done]
                    if not candidates:
                        break
                    del self.oracle.entries[min(candidates, key=lambda p: self.oracle.entries[p].used)]
                start = len(done) * BLOCK
                created.append((start, len(path[1]) - start))
                self.oracle.entries[path] = Entry(-1, self.oracle.clock)
            done.append(path)
        if done:
            self.oracle.use(done[-1])
        return created, done[-1] if done else None

    @rule(root=st.sampled_from(ROOTS), tokens=SEQUENCES)
    def lookup(self, root: bytes, tokens: tuple[int, ...]) -> None:
        match = self.pool.lookup(root, tokens)
        assert match.num_tokens == self.oracle.common_prefix(root, tokens)
        self.check_content(root, tokens, match)

    def check_content(self, root: bytes, tokens: tuple[int, ...], match: Match) -> None:
        """Every piece lies in a block whose whole path begins like the tokens asked for: never a wrong hit."""
        by_index = {entry.index: path for path, entry in self.oracle.entries.items()}
        position, path = 0, None
        for piece, key in zip(match.pieces, match.keys, strict=True):
            path = by_index[piece.index]
            assert path[0] == root
            assert piece.start == position == (len(path[1]) - 1) // BLOCK * BLOCK
            position += piece.num_tokens
            assert path[1][:position] == tokens[:position]
            assert key == key_of(path)
        assert match.num_tokens == position
        assert match.end == (key_of(path) if path and len(path[1]) == position else None)
        if path:
            self.oracle.use(path)

    @rule(root=st.sampled_from(ROOTS), tokens=SEQUENCES)
    def pin(self, root: bytes, tokens: tuple[int, ...]) -> None:
        paths = [path for path in blocks_of(root, tokens) if path in self.oracle.entries]
        self.pool.pin([key_of(path) for path in paths])
        for path in paths:
            self.oracle.entries[path].pins += 1
        self.pinned.append(paths)

    @rule(place=st.integers(0, 9))
    def unpin(self, place: int) -> None:
        if place < len(self.pinned):
            paths = self.pinned.pop(place)
            self.pool.unpin([key_of(path) for path in paths])
            for path in paths:
                self.oracle.entries[path].pins -= 1

    @rule(root=st.sampled_from(ROOTS), tokens=SEQUENCES, keep=st.integers(0, 8))
    def release(self, root: bytes, tokens: tuple[int, ...], keep: int) -> None:
        """Also of sequences that were never stored or are long evicted."""
        path = (root, tokens)
        self.pool.release(key_of(path), keep)
        if path in self.oracle.entries:
            for place in reversed(self.oracle.ancestors(path)):
                if not self.oracle.is_free_to_go(place) or len(place[1]) <= keep:
                    break
                del self.oracle.entries[place]

    @invariant()
    def accounts_agree(self) -> None:
        self.pool.check_invariants()
        assert self.pool.num_stored == len(self.oracle.entries) <= self.pool.num_blocks
        assert self.pool.num_free == self.pool.num_blocks - len(self.oracle.entries)
        assert self.pool.num_pinned == sum(entry.pins > 0 for entry in self.oracle.entries.values())


TestPoolMachine = PoolMachine.TestCase
TestPoolMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def store(pool: BlockPool, tokens: tuple[int, ...], root: bytes = ROOTS[0]) -> bytes:
    end = pool.store(root, tokens)[1]
    assert end is not None
    return end


def test_prefix_that_ends_inside_a_block() -> None:
    pool = BlockPool(8, 4)
    store(pool, (1, 2, 3, 4, 5, 6, 7, 8))
    match = pool.lookup(ROOTS[0], (1, 2, 3, 4, 5, 6, 9))
    assert (match.num_tokens, match.end) == (6, None)
    assert [(piece.start, piece.num_tokens) for piece in match.pieces] == [(0, 4), (4, 2)]


def test_match_prefers_the_block_that_ends_there() -> None:
    pool = BlockPool(8, 4)
    store(pool, (1, 2, 3))
    end = store(pool, (1, 2))
    assert pool.lookup(ROOTS[0], (1, 2)).end == end


def test_nothing_is_stored_of_nothing() -> None:
    pool = BlockPool(2, 4)
    assert pool.store(ROOTS[0], ()) == ([], None)
    assert pool.lookup(ROOTS[0], ()) == Match((), (), 0, None)


def test_full_pool_stores_a_prefix() -> None:
    pool = BlockPool(2, 2)
    created, end = pool.store(ROOTS[0], (1, 2, 3, 4, 5, 6))
    assert created == [Piece(0, 0, 2), Piece(1, 2, 2)]
    assert pool.lookup(ROOTS[0], (1, 2, 3, 4, 5, 6)).end == end
    pool.pin([end] if end else [])
    assert pool.store(ROOTS[1], (7,)) == ([], None)


def test_least_recently_used_goes_first_and_whole() -> None:
    """An old sequence goes from its end, block by block, before any block of a younger one."""
    pool = BlockPool(4, 2)
    store(pool, (1, 2, 3, 4))
    store(pool, (5, 6))
    store(pool, (7, 8, 9, 9))
    assert pool.lookup(ROOTS[0], (1, 2, 3, 4)).num_tokens == 2
    store(pool, (0, 0))
    assert pool.lookup(ROOTS[0], (5, 6)).num_tokens == 0, "the first sequence was used since"
    assert pool.lookup(ROOTS[0], (1, 2)).num_tokens == 2


def test_release_stops_at_what_others_share() -> None:
    pool = BlockPool(8, 2)
    first = store(pool, (1, 2, 3, 4, 5))
    store(pool, (1, 2, 3, 4, 6))
    pool.release(first)
    assert pool.num_stored == 3
    assert pool.lookup(ROOTS[0], (1, 2, 3, 4, 5)).num_tokens == 4


@pytest.mark.parametrize(("keep_tokens", "left"), [(0, 0), (3, 1), (4, 2), (5, 3)])
def test_release_keeps_the_prompt(keep_tokens: int, left: int) -> None:
    pool = BlockPool(8, 2)
    pool.release(store(pool, (1, 2, 3, 4, 5)), keep_tokens)
    assert pool.num_stored == left


def test_release_of_what_was_evicted() -> None:
    pool = BlockPool(2, 2)
    gone = store(pool, (1, 2))
    store(pool, (3, 4, 5, 6))
    pool.release(gone)
    pool.release(b"never stored")
    assert pool.num_stored == 2
