"""Which cached blocks lie at which places, as far as was told. Pure.

A block is known by its key (`kv.keys`), which names all tokens up to its end. What a place holds of a sequence is found by binary
search over the sequence's keys: exact where a place that has a block has all before it, as an engine's pool does; where there are
gaps the answer ends at one of them. Of each place the latest `max_blocks` that were added are known: others are taken for missing.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence

from plait.kv.keys import Key

MAX_BLOCKS = 65536
"""A million tokens, about 10 MB."""

Place = tuple[str, str]


class PrefixIndex:
    def __init__(self, max_blocks: int = MAX_BLOCKS) -> None:
        self._max_blocks = max_blocks
        self._places: dict[Place, OrderedDict[Key, None]] = {}

    def add(self, place: Place, keys: Iterable[Key]) -> None:
        """Those that were added longest ago are forgotten where room is short."""
        held = self._places.setdefault(place, OrderedDict())
        for key in keys:
            held[key] = None
            held.move_to_end(key)
        while len(held) > self._max_blocks:
            held.popitem(last=False)

    def drop(self, place: Place, keys: Iterable[Key]) -> None:
        """Fine if they are not there."""
        held = self._places.get(place)
        if held is not None:
            for key in keys:
                held.pop(key, None)
            if not held:
                del self._places[place]

    def lose(self, place: Place) -> None:
        """All of it."""
        self._places.pop(place, None)

    @property
    def places(self) -> list[Place]:
        return list(self._places)

    def num_blocks(self, place: Place) -> int:
        return len(self._places.get(place, ()))

    def reach(self, place: Place, keys: Sequence[Key], start: int = 0) -> int:
        """How far the place has a sequence's blocks from the one at `start` on: the index of the first that it lacks. O(log n)."""
        held = self._places.get(place)
        if held is None or start >= len(keys) or keys[start] not in held:
            return start
        if keys[-1] in held:
            return len(keys)
        here, gone = start, len(keys) - 1
        while gone - here > 1:
            middle = (here + gone) // 2
            if keys[middle] in held:
                here = middle
            else:
                gone = middle
        return gone
