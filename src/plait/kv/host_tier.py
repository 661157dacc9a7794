"""The blocks in shared memory that the engines of one machine see: each writes its own segment and reads all."""

import threading
import time
from collections.abc import Sequence

from plait.kv.block_log import BlockLog
from plait.kv.block_record import BlockRecord
from plait.kv.chain import Link
from plait.kv.counters import TierCounters
from plait.kv.keys import Key
from plait.kv.segment import Rank, Segment
from plait.kv.shared_memory import SharedMemory, attach


class HostTier:
    """Threads of one process may share it; other processes may do anything at any time."""

    def __init__(self, own: Segment, others: Sequence[Segment] = ()) -> None:
        self._own, self._segments = own, (own, *others)
        self._lock = threading.Lock()
        self.counters = TierCounters(capacity_bytes=own.capacity_bytes)

    @classmethod
    def attach(cls, own_path: str, other_paths: Sequence[str], payload_bytes: int) -> "HostTier":
        own, *others = (Segment(attach(path), payload_bytes) for path in (own_path, *other_paths))
        return cls(own, others)

    @classmethod
    def alone(cls, num_bytes: int, payload_bytes: int) -> "HostTier":
        """Of memory that no other engine reads."""
        memory = SharedMemory(num_bytes)
        try:
            return cls.attach(memory.path, (), payload_bytes)
        finally:
            memory.close()

    def tell(self, log: BlockLog) -> None:
        """The log hears from now on what comes to this engine's own segment, and what it gives up."""
        self._own.log = log

    @property
    def payload_bytes(self) -> int:
        return self._own.payload_bytes

    @property
    def used_bytes(self) -> int:
        """Of this engine's own segment."""
        return self._own.used_bytes

    def link(self, key: Key) -> Link | None:
        return next((link for segment in self._segments if (link := segment.link(key))), None)

    def read(self, key: Key) -> tuple[BlockRecord | None, bool]:
        """The block; and whether another engine has stored it."""
        for segment in self._segments:
            record, was_corrupt = segment.read(key)
            with self._lock:
                self.counters.corrupt += was_corrupt
            if record is not None:
                return record, segment is not self._own
        return None, False

    def mark(self, key: Key, rank: Rank, now_us: int) -> bool:
        """Note a use wherever the block lies; whether it lies anywhere."""
        return sum(segment.mark(key, rank, now_us) for segment in self._segments) > 0

    def used_us(self, key: Key) -> int | None:
        """When the block was used last, if it lies anywhere."""
        return max((used_us for segment in self._segments if (used_us := segment.used_us(key)) is not None), default=None)

    def rank(self, key: Key) -> Rank:
        """The highest it has anywhere; EMPTY if it is not here."""
        return max(segment.rank(key) for segment in self._segments)

    def release(self, key: Key, stamp_us: int) -> bool:
        """Free a block wherever it lies, unless it was used after the given time; whether any was freed."""
        return sum(segment.release(key, stamp_us) for segment in self._segments) > 0

    def put(self, record: BlockRecord, rank: Rank, now_us: int) -> BlockRecord | None:
        """Store a block unless it is here; a block that had to make room although it is expected."""
        with self._lock:
            if self.mark(record.link.key, rank, now_us):
                return None
            was_stored, evicted = self._own.write(record, rank, now_us)
            self.counters.writes += was_stored
            self.counters.failures += not was_stored
            self.counters.evictions += evicted is not None
            return evicted

    def close(self) -> None:
        for segment in self._segments:
            segment.close()


def clock_us() -> int:
    """The same for all processes of a machine, and about the same for all nodes of a cluster, whose stamps are compared."""
    return time.time_ns() // 1000
