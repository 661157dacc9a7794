"""The tier between nodes: a cold tier over one guarded store, which knows which blocks it gave."""

import threading
from collections import OrderedDict

from plait.kv.block_record import BlockRecord
from plait.kv.cold_tier import ColdTier
from plait.kv.guarded_store import GuardedStore
from plait.kv.keys import Key

PENDING_BYTES = 64 * 2**20
"""Most that waits in memory to be written."""
MAX_TAKEN = 16384
"""Blocks remembered that came from the store and have not been used yet."""


class StoreTier(ColdTier):
    """`capacity_bytes` is this engine's share."""

    def __init__(self, store: GuardedStore, capacity_bytes: int, payload_bytes: int) -> None:
        super().__init__([store], capacity_bytes, max(1, PENDING_BYTES // payload_bytes))
        self._store = store
        self._given_lock = threading.Lock()
        self._given: OrderedDict[Key, None] = OrderedDict()

    @property
    def timeout_s(self) -> float:
        """Of one call, and of all calls that a chunk waits for."""
        return self._store.timeout_s

    @property
    def is_on(self) -> bool:
        return self._store.is_on

    def get(self, key: Key) -> BlockRecord | None:
        record = super().get(key)
        if record is None:
            return None
        with self._given_lock:
            self._given[key] = None
            while len(self._given) > MAX_TAKEN:
                self._given.popitem(last=False)
        return record

    def took(self, key: Key) -> bool:
        """Whether the block came from here, and was not asked about since."""
        with self._given_lock:
            return self._given.pop(key, self) is None

    def gave_up(self, duration_s: float) -> None:
        """A chunk starts without the rest of what it waited for. If most of the wait was the store's doing it is turned off."""
        if duration_s >= self.timeout_s / 2 and self.is_on:
            self._store.late()
