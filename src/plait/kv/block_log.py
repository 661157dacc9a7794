"""What has come to a place of cached blocks and gone from it, for whoever wants to know where blocks are without asking."""

import threading
from collections.abc import Iterator

import msgspec

from plait.kv.keys import KEY_BYTES, Key

MAX_CHANGES = 8192
"""Most that wait to be told: 128 KiB."""
DEVICE, HOST, DISK, STORE = "device", "host", "disk", "store"
"""An engine's pool, its share of host memory, the disk, and the store between nodes."""


class BlockNews(msgspec.Struct, frozen=True):
    """Since the news before. Keys one after another, without anything between."""

    tier: str
    came: bytes = b""
    went: bytes = b""
    is_cut: bool = False
    """More has happened than this: forget what was known of the tier."""


class BlockLog:
    """Any thread may write. Of each block the last change counts."""

    def __init__(self, tier: str, max_changes: int = MAX_CHANGES) -> None:
        self.tier, self._max_changes = tier, max_changes
        self._lock = threading.Lock()
        self._changes: dict[Key, bool] = {}
        self._is_cut = False

    def came(self, key: Key) -> None:
        self._note(key, True)

    def went(self, key: Key) -> None:
        self._note(key, False)

    def _note(self, key: Key, is_here: bool) -> None:
        with self._lock:
            self._changes.pop(key, None)
            self._changes[key] = is_here
            if len(self._changes) > self._max_changes:
                self._changes, self._is_cut = {}, True

    def take(self) -> BlockNews | None:
        """What was noted since it was asked last; None if nothing was."""
        with self._lock:
            changes, self._changes = self._changes, {}
            is_cut, self._is_cut = self._is_cut, False
        if not changes and not is_cut:
            return None
        came, went = (b"".join(key for key, is_here in changes.items() if is_here is wanted) for wanted in (True, False))
        return BlockNews(self.tier, came, went, is_cut)


def keys_in(packed: bytes) -> Iterator[Key]:
    return (packed[start : start + KEY_BYTES] for start in range(0, len(packed), KEY_BYTES))
