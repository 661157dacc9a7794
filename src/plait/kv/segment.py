"""Blocks in shared memory: written by one process, read by all of a machine, without locks and without an index.

- A key has two sets of `WAYS` slots in which it may lie, and a block moves to its other set before one is given up: so nearly
  all slots fill (bucketized cuckoo hashing, one move deep).
- A slot is a header and a payload. The writer takes the key away, writes the payload, then the header, the key last.
- A reader copies, looks whether the header is still the same, and checks the checksum: a block that is being replaced, was torn
  by a kill, or has changed is a miss.
- Anybody may mark a block as used, released or gone. Such a mark may hit a block that has just taken the slot: then that
  one is given up earlier or later than it should be, and nothing worse.
- What is given up for a new block: first empty slots, then released blocks, then the least recently used of the lowest rank.
"""

import mmap
import struct
from collections.abc import Iterator
from enum import IntEnum

from plait.kv.block_log import BlockLog
from plait.kv.block_record import BlockRecord
from plait.kv.chain import IDENTITY_BYTES, Link
from plait.kv.keys import KEY_BYTES, Key

WAYS = 8
EXPECTED_US = 15 * 60 * 1_000_000
"""A block of which nobody has heard for so long is no longer expected (whoever expected it may be gone)."""
_STATE = struct.Struct("<IIQB7x")
"""Generation, checksum, last use (us), rank."""
HEADER_BYTES = IDENTITY_BYTES + _STATE.size
_STANDING = struct.Struct(f"<{KEY_BYTES}s{HEADER_BYTES - KEY_BYTES - 16}xQB7x")
"""Key, last use and rank of a header."""
_USE = struct.Struct("<QB")
_USE_OFFSET = IDENTITY_BYTES + 8
PAGE_BYTES = 4096
_NO_KEY = bytes(KEY_BYTES)


class Rank(IntEnum):
    EMPTY = 0
    RELEASED = 1
    """Free: found as long as nothing else needs the slot."""
    KEPT = 2
    """Of use to whoever has the same prompt."""
    EXPECTED = 3
    """A later chunk or turn is to go on from here."""


_RANKS = frozenset(Rank)


class Segment:
    """`payload_bytes` of every block are the same. Times are microseconds of a clock all processes share."""

    log: BlockLog | None = None
    """Of the owner: told of what it writes, of what makes room for that, and of what it finds corrupt."""

    def __init__(self, memory: mmap.mmap, payload_bytes: int) -> None:
        self._memory, self.payload_bytes = memory, payload_bytes
        num_slots = max(0, len(memory) - PAGE_BYTES) // (HEADER_BYTES + payload_bytes)
        self._ways = min(WAYS, num_slots)
        self._num_sets = num_slots // self._ways if num_slots else 0
        self.num_slots = self._num_sets * self._ways
        self._payloads = -(-self.num_slots * HEADER_BYTES // PAGE_BYTES) * PAGE_BYTES
        self._view = memoryview(memory)

    @property
    def capacity_bytes(self) -> int:
        return self.num_slots * self.payload_bytes

    @property
    def used_bytes(self) -> int:
        """Of blocks that are not released."""
        headers = _STANDING.iter_unpack(self._memory[: self.num_slots * HEADER_BYTES])
        return sum(rank > Rank.RELEASED and key != _NO_KEY for key, _, rank in headers) * self.payload_bytes

    def close(self) -> None:
        self._view.release()
        self._memory.close()

    # ---- reading

    def find(self, key: Key) -> int | None:
        """The slot that holds a key, as of now."""
        set_bytes = self._ways * HEADER_BYTES
        for number in self._sets(key):
            start = place = number * set_bytes
            while (place := self._memory.find(key, place, start + set_bytes)) >= 0:
                if place % HEADER_BYTES == 0:
                    return place // HEADER_BYTES
                place += 1  # a child's header names its parent
        return None

    def _sets(self, key: Key) -> tuple[int, ...]:
        if not self._num_sets:
            return ()
        halves = (int.from_bytes(key[:8]), int.from_bytes(key[8:]))
        return tuple(dict.fromkeys(half % self._num_sets for half in halves))

    def link(self, key: Key) -> Link | None:
        """What a stored block is, without its bits."""
        slot = self.find(key)
        link = None if slot is None else Link.unpack(self._header(slot))
        return link if link is not None and link.key == key else None

    def read(self, key: Key) -> tuple[BlockRecord | None, bool]:
        """The block, if it is here whole; and whether it was found corrupt, and dropped."""
        slot = self.find(key)
        if slot is None:
            return None, False
        header = self._header(slot)
        record = BlockRecord(Link.unpack(header), bytearray(self._payload(slot)))
        is_same = self._header(slot).startswith(header[:_USE_OFFSET]) and record.link.key == key
        if is_same and record.checksum == _STATE.unpack_from(header, IDENTITY_BYTES)[1]:
            return record, False
        if is_same:
            self._set_key(slot, _NO_KEY)
            if self.log is not None:
                self.log.went(key)
        return None, is_same

    def _header(self, slot: int) -> bytes:
        return self._memory[slot * HEADER_BYTES : (slot + 1) * HEADER_BYTES]

    def _payload(self, slot: int) -> memoryview:
        start = self._payloads + slot * self.payload_bytes
        return self._view[start : start + self.payload_bytes]

    # ---- marks, by anybody

    def mark(self, key: Key, rank: Rank, now_us: int) -> bool:
        """Note a use, and what the block is worth from now on; whether it is here."""
        slot = self.find(key)
        if slot is not None:
            _USE.pack_into(self._memory, slot * HEADER_BYTES + _USE_OFFSET, now_us, rank)
        return slot is not None

    def release(self, key: Key, stamp_us: int) -> bool:
        """Free a block unless it was used after the given time; whether it was freed."""
        used_us = self.used_us(key)
        return used_us is not None and used_us <= stamp_us and self.mark(key, Rank.RELEASED, used_us)

    def used_us(self, key: Key) -> int | None:
        """When the block was used last."""
        slot = self.find(key)
        return None if slot is None else int(_USE.unpack_from(self._memory, slot * HEADER_BYTES + _USE_OFFSET)[0])

    def rank(self, key: Key) -> Rank:
        slot = self.find(key)
        rank = Rank.EMPTY if slot is None else _USE.unpack_from(self._memory, slot * HEADER_BYTES + _USE_OFFSET)[1]
        return Rank(rank) if rank in _RANKS else Rank.EMPTY

    def _set_key(self, slot: int, key: Key) -> None:
        self._memory[slot * HEADER_BYTES : slot * HEADER_BYTES + KEY_BYTES] = key

    # ---- writing, by the owner

    def write(self, record: BlockRecord, rank: Rank, now_us: int) -> tuple[bool, BlockRecord | None]:
        """Store a block that is not here; whether it was, and the block that was given up if somebody expects it.

        Not stored: what ranks below all it could take the place of.
        """
        victim = min(self._candidates(record.link.key, now_us), default=None)
        if victim is None or victim[0] > rank:
            return False, None
        slot, evicted = victim[-1], None
        cleared = self._cleared(record.link.key, now_us) if victim[0] > Rank.RELEASED else None
        if cleared is not None:
            slot = cleared
        elif victim[0] == Rank.EXPECTED:
            evicted = BlockRecord(Link.unpack(self._header(slot)), bytearray(self._payload(slot)))
        self._fill(slot, record, rank, now_us)
        return True, evicted

    def _cleared(self, key: Key, now_us: int) -> int | None:
        """A slot for the key whose block could move to its other set."""
        for _, _, _, slot in self._candidates(key, now_us):
            header = self._header(slot)
            place = min(self._candidates(header[:KEY_BYTES], now_us))
            if place[0] <= Rank.RELEASED:
                record = BlockRecord(Link.unpack(header), bytearray(self._payload(slot)))
                _, _, used_us, rank = _STATE.unpack_from(header, IDENTITY_BYTES)
                self._fill(place[-1], record, Rank(rank), used_us)
                return slot
        return None

    def _candidates(self, key: Key, now_us: int) -> Iterator[tuple[int, int, int, int]]:
        """(rank, occupied slots of its set if it is empty, last use, slot) of all slots the key may take."""
        for number in self._sets(key):
            entries = list(self._standings(number, now_us))
            occupied = sum(rank > Rank.RELEASED for rank, _ in entries)
            for slot, (rank, used_us) in enumerate(entries, start=number * self._ways):
                yield rank, occupied if rank <= Rank.RELEASED else 0, used_us, slot

    def _standings(self, number: int, now_us: int) -> Iterator[tuple[int, int]]:
        """(rank as it counts now, last use) of a set's slots."""
        set_bytes = self._ways * HEADER_BYTES
        for key, used_us, rank in _STANDING.iter_unpack(self._memory[number * set_bytes : (number + 1) * set_bytes]):
            if key == _NO_KEY:
                yield Rank.EMPTY, 0
            elif rank == Rank.EXPECTED and now_us - used_us > EXPECTED_US:
                yield Rank.KEPT, used_us
            else:
                yield rank, used_us

    def _fill(self, slot: int, record: BlockRecord, rank: Rank, now_us: int) -> None:
        start = slot * HEADER_BYTES
        generation = (_STATE.unpack_from(self._memory, start + IDENTITY_BYTES)[0] + 1) % 2**32
        old = self._memory[start : start + KEY_BYTES]
        self._set_key(slot, _NO_KEY)
        self._payload(slot)[:] = record.payload
        state = _STATE.pack(generation, record.checksum, now_us, rank)
        self._memory[start + KEY_BYTES : start + HEADER_BYTES] = record.link.pack()[KEY_BYTES:] + state
        self._set_key(slot, record.link.key)
        if self.log is not None:
            self._tell(self.log, old, record.link.key)

    def _tell(self, log: BlockLog, old: Key, new: Key) -> None:
        """A block that has moved to its other set is still here."""
        if old != _NO_KEY and self.find(old) is None:
            log.went(old)
        log.came(new)
