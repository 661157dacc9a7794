"""What engines have told of the cached blocks that they hold, and of those in the tiers below them. Pure.

News come late, are cut where there is too much, and say nothing of what a store or another process loses by itself. So all of it is
a guess: it decides where a chunk runs and what is brought up for it, and whatever turns out to be missing is computed.
"""

from collections.abc import Iterable, Sequence

from plait.kv.block_log import DEVICE, DISK, HOST, STORE, BlockNews, keys_in
from plait.kv.keys import Key
from plait.rollout.prefix_index import MAX_BLOCKS, Place, PrefixIndex
from plait.rollout.token_chain import TokenChain
from plait.types.chunks import NOTHING_BELOW, PullFrom

PROMISED = "promised"
"""Blocks that an engine computes just now."""


class Holdings:
    """`is_apart`: engines read no host memory but their own, and it is lost with them. Disk and store are everybody's, and stay."""

    def __init__(self, *, is_apart: bool = False, max_blocks: int = MAX_BLOCKS) -> None:
        self._is_apart, self._index = is_apart, PrefixIndex(max_blocks)

    def _place(self, tier: str, engine: str) -> Place:
        is_own = tier in (DEVICE, PROMISED) or (tier == HOST and self._is_apart)
        return tier, engine if is_own else ""

    def heard(self, engine: str, news: Iterable[BlockNews]) -> None:
        for one in news:
            place = self._place(one.tier, engine)
            if one.is_cut:
                self._index.lose(place)
            self._index.drop(place, keys_in(one.went))
            self._index.add(place, keys_in(one.came))

    def lose(self, engine: str | None) -> None:
        """It is gone, and what only it had; None: all are."""
        for place in self._index.places:
            if place[1] and engine in (None, place[1]):
                self._index.lose(place)

    def promise(self, engine: str, keys: Sequence[Key]) -> None:
        """It will hold them soon, until they are `settled`."""
        self._index.add(self._place(PROMISED, engine), keys)

    def settled(self, engine: str, keys: Sequence[Key]) -> None:
        """It has told what it holds."""
        self._index.drop(self._place(PROMISED, engine), keys)

    def num_blocks(self, tier: str, engine: str = "") -> int:
        """Known to be there."""
        return self._index.num_blocks(self._place(tier, engine))

    # ---- of a sequence, in blocks from the first on

    def at_hand(self, engine: str, keys: Sequence[Key]) -> tuple[int, int]:
        """On its device, and from there on in host memory that it reads; and on its device alone."""
        on_device = max(self._index.reach(self._place(tier, engine), keys) for tier in (DEVICE, PROMISED))
        return self._index.reach(self._place(HOST, engine), keys, on_device), on_device

    def pull(self, engine: str, chain: TokenChain) -> PullFrom:
        """From where the engine can get more than it has at hand."""
        num_blocks, _ = self.at_hand(engine, chain.keys)
        for tier in (DISK, STORE) if num_blocks < len(chain.keys) else ():
            found = self._index.reach(self._place(tier, engine), chain.keys, num_blocks)
            if found > num_blocks:
                return PullFrom(tier, chain.tokens(found))
        return NOTHING_BELOW
