"""A segment against a dictionary: what is found is right, what is expected is not lost silently, and nothing grows."""

import mmap
import random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from plait.kv.block_log import HOST, BlockLog, BlockNews, keys_in
from plait.kv.block_record import BlockRecord
from plait.kv.chain import Link
from plait.kv.segment import EXPECTED_US, HEADER_BYTES, Rank, Segment
from tests.kv.blocks import PAYLOAD_BYTES, links_of, make_segment, payload_of, record_of, segment_bytes

KEYS = [bytes([number]) * 7 + bytes([number + 1]) + bytes([255 - number]) * 8 for number in range(1, 30)]
RANKS = st.sampled_from([Rank.RELEASED, Rank.KEPT, Rank.EXPECTED])


class SegmentMachine(RuleBasedStateMachine):
    """The oracle holds every payload ever written last under a key, and what must still be there."""

    def __init__(self) -> None:
        super().__init__()
        self.segment, self.now_us = make_segment(12), 0
        self.segment.log = self.log = BlockLog(HOST)
        self.told: set[bytes] = set()
        self.written: dict[bytes, bytes] = {}
        self.expected: set[bytes] = set()

    @rule(key=st.sampled_from(KEYS), rank=RANKS, value=st.integers(0, 255), parent=st.sampled_from(KEYS))
    def write(self, key: bytes, rank: Rank, value: int, parent: bytes) -> None:
        self.now_us += 1
        if self.segment.mark(key, rank, self.now_us):
            assert key in self.written
            self._rank(key, rank)
            return
        payload = bytes([value]) * PAYLOAD_BYTES
        was_stored, evicted = self.segment.write(BlockRecord(Link(key, parent, 3, 4), payload), rank, self.now_us)
        if evicted is not None:
            assert rank == Rank.EXPECTED, "what is expected makes room for its equals only"
            assert bytes(evicted.payload) == self.written[evicted.link.key]
            self.expected.remove(evicted.link.key)
        if was_stored:
            self.written[key] = payload
            self._rank(key, rank)
        else:
            assert rank < Rank.EXPECTED, "something can always make room for what is expected"

    @rule(key=st.sampled_from(KEYS), rank=RANKS)
    def mark(self, key: bytes, rank: Rank) -> None:
        self.now_us += 1
        if self.segment.mark(key, rank, self.now_us):
            self._rank(key, rank)

    def _rank(self, key: bytes, rank: Rank) -> None:
        (self.expected.add if rank == Rank.EXPECTED else self.expected.discard)(key)

    @rule(key=st.sampled_from(KEYS))
    def read(self, key: bytes) -> None:
        record, was_corrupt = self.segment.read(key)
        assert not was_corrupt
        if record is None:
            assert key not in self.expected
            assert self.segment.link(key) is None
        else:
            assert bytes(record.payload) == self.written[key]
            assert self.segment.link(key) == record.link

    @rule(key=st.sampled_from(KEYS), place=st.integers(0, PAYLOAD_BYTES - 1))
    def spoil(self, key: bytes, place: int) -> None:
        slot = self.segment.find(key)
        if slot is None:
            return
        self.segment._payload(slot)[place] ^= 4
        assert self.segment.read(key) == (None, True)
        assert self.segment.read(key) == (None, False), "dropped at once"
        self.expected.discard(key)

    @invariant()
    def is_bounded(self) -> None:
        found = [key for key in KEYS if self.segment.find(key) is not None]
        assert len(found) <= self.segment.num_slots <= 12
        news = self.log.take() or BlockNews(HOST)
        self.told = (self.told | set(keys_in(news.came))) - set(keys_in(news.went))
        assert self.told == set(found), "whoever hears of what comes and goes knows what is here"
        assert self.expected <= set(found)
        assert len(self.expected) * PAYLOAD_BYTES <= self.segment.used_bytes <= len(found) * PAYLOAD_BYTES


TestSegment = SegmentMachine.TestCase
TestSegment.settings = settings(max_examples=12, stateful_step_count=30, deadline=None)


def test_nearly_all_slots_fill_before_one_is_given_up() -> None:
    segment = make_segment(400)
    links = links_of(range(4 * segment.num_slots))
    lost = []
    for now_us, link in enumerate(links):
        was_stored, evicted = segment.write(record_of(link), Rank.EXPECTED, now_us)
        assert was_stored
        lost += [now_us] if evicted is not None else []
        assert segment.used_bytes == (now_us + 1 - len(lost)) * PAYLOAD_BYTES, "no block lies in two slots"
    assert sum(number < 0.85 * len(links) for number in lost) <= 2
    assert len(lost) <= 0.04 * len(links)


def test_what_makes_room() -> None:
    """Empty slots, then released blocks, then kept ones by use, then expected ones by use."""
    segment = make_segment(4)
    first = links_of(range(16))
    for now_us, (link, rank) in enumerate(zip(first, [Rank.EXPECTED, Rank.KEPT, Rank.RELEASED, Rank.KEPT], strict=True)):
        assert segment.write(record_of(link), rank, now_us) == (True, None)
    segment.mark(first[1].key, Rank.KEPT, 10)
    gone = []
    for now_us, link in enumerate(links_of(range(100, 116)), start=20):
        was_stored, evicted = segment.write(record_of(link), Rank.EXPECTED, now_us)
        assert was_stored
        gone += [old for old in first if segment.find(old.key) is None and old not in gone]
        assert (evicted is None) == (len(gone) < 4)
    assert gone == [first[2], first[3], first[1], first[0]]


def test_kept_block_takes_no_place_of_an_expected_one() -> None:
    segment = make_segment(2)
    for link in links_of(range(8)):
        segment.write(record_of(link), Rank.EXPECTED, 0)
    other = links_of(range(50, 54))[0]
    assert segment.write(record_of(other), Rank.KEPT, 1) == (False, None)
    assert segment.write(record_of(other), Rank.KEPT, EXPECTED_US + 1) == (True, None), "expected for too long"


def test_child_in_the_set_of_its_parent_is_not_taken_for_it() -> None:
    segment = make_segment(8)
    first, second = links_of(range(8))
    segment.write(record_of(second), Rank.KEPT, 0)
    assert segment.find(first.key) is None
    segment.write(record_of(first), Rank.KEPT, 0)
    assert segment.read(first.key)[0] == record_of(first)


@pytest.mark.parametrize("num_slots", [0, 1, 7, 8, 9, 17])
def test_any_size_serves(num_slots: int) -> None:
    segment = make_segment(num_slots)
    assert segment.num_slots <= max(1, num_slots + 1)
    for link in links_of(range(80)):
        was_stored, _ = segment.write(record_of(link), Rank.EXPECTED, 0)
        assert was_stored == (segment.num_slots > 0)
        assert (segment.find(link.key) is not None) == was_stored
    assert segment.used_bytes <= segment.capacity_bytes


def test_memory_of_rubbish_is_no_block() -> None:
    memory = mmap.mmap(-1, segment_bytes(16))
    link = links_of(range(4))[0]
    memory[:] = random.Random(1).randbytes(len(memory))
    for place in range(0, 16 * HEADER_BYTES, HEADER_BYTES):
        memory[place : place + 16] = link.key
    segment = Segment(memory, PAYLOAD_BYTES)
    assert segment.read(link.key) == (None, True)
    assert segment.link(b"\1" * 16) is None
    assert segment.used_bytes >= 0
    assert payload_of(link)
