"""What lies behind the host tier (a disk, or a store between nodes): slow, may fail, may lose things. A thread of its own writes.

No failure of a store reaches a request: it is counted, and the block is missing.
"""

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from plait.kv.background import Background
from plait.kv.block_log import BlockLog
from plait.kv.block_record import BlockRecord, decode, encode
from plait.kv.block_store import BlockStore
from plait.kv.counters import TierCounters
from plait.kv.disk_store import DiskStore
from plait.kv.keys import Key

T = TypeVar("T")

MAX_PENDING = 64
"""Most blocks that wait to be written: the engine makes them faster than a disk takes them, and they lie in memory meanwhile."""


class ColdTier:
    """Written blocks go to the first store; blocks are looked for in all, in order."""

    log: BlockLog | None = None
    """Told of what is on its way here, and of what is here no more as far as is known."""

    def __init__(self, stores: Sequence[BlockStore], capacity_bytes: int = 0, max_pending: int = MAX_PENDING) -> None:
        self._stores, self._max_pending = tuple(stores), max_pending
        self._writer = Background("kv-write")
        self._lock = threading.Lock()
        self._pending: dict[Key, BlockRecord] = {}
        self.counters = TierCounters(capacity_bytes=capacity_bytes)

    def tell(self, log: BlockLog) -> None:
        """The log hears from now on. What a store gives up by itself it hears of disks only."""
        self.log = log
        for store in self._stores:
            if isinstance(store, DiskStore):
                store.log = log

    def get(self, key: Key) -> BlockRecord | None:
        with self._lock:
            pending = self._pending.get(key)
        return pending or next((record for store in self._stores if (record := self._read(store, key))), None)

    def _read(self, store: BlockStore, key: Key) -> BlockRecord | None:
        data = self._try(partial(store.get, key))
        if data is None:
            return None
        self.counters.read_bytes += len(data)
        record = decode(key, data)
        if record is None:
            self.counters.corrupt += 1
            self._try(partial(store.remove, key))
            self._went(key)
        return record

    def put_later(self, record: BlockRecord) -> None:
        """Write a block when its turn comes; dropped if too many wait."""
        with self._lock:
            if len(self._pending) >= self._max_pending:
                self.counters.failures += 1
                return
            self._pending[record.link.key] = record
        if self.log is not None:
            self.log.came(record.link.key)
        self._writer.submit(self._write, record)

    def _write(self, record: BlockRecord) -> None:
        key = record.link.key
        with self._lock:
            is_wanted = self._pending.get(key) is record
        data, is_written = encode(record) if is_wanted else b"", False
        try:
            is_written = is_wanted and self._try(partial(self._put, key, data)) is not None
        finally:  # Whatever it is that went wrong: what waits no more must not keep others from waiting.
            with self._lock:
                self.counters.writes += is_wanted
                self.counters.written_bytes += len(data) * is_written
                if self._pending.get(key) is record:
                    del self._pending[key]
            if is_wanted and self.log is not None:
                (self.log.came if is_written else self.log.went)(key)

    def _went(self, key: Key) -> None:
        if self.log is not None:
            self.log.went(key)

    def _put(self, key: Key, data: bytes) -> bool:
        self._stores[0].put(key, data)
        return True

    def remove_later(self, keys: Sequence[Key]) -> None:
        with self._lock:
            for key in keys:
                self._pending.pop(key, None)
        self._writer.submit(self._remove, tuple(keys))

    def _remove(self, keys: Sequence[Key]) -> None:
        for key in keys:
            for store in self._stores:
                self._try(partial(store.remove, key))
            self._went(key)

    def _try(self, call: Callable[[], T]) -> T | None:
        try:
            return call()
        except OSError:
            self.counters.failures += 1
            return None

    @property
    def used_bytes(self) -> int:
        return sum(store.used_bytes for store in self._stores)

    def flush(self) -> None:
        """Wait until what was to be written or removed until now is."""
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()
        for store in self._stores:
            store.close()
