"""Blocks are found wherever they lie, and whatever goes wrong with a tier is a miss and a counter."""

import errno
import threading
import time
from pathlib import Path

import pytest

from plait.kv.block_log import BlockLog
from plait.kv.block_record import encode
from plait.kv.cold_tier import MAX_PENDING, ColdTier
from plait.kv.disk_store import DiskStore
from plait.kv.host_tier import clock_us
from plait.kv.segment import Rank
from plait.kv.tiers import LowerTiers
from tests.kv.blocks import BLOCK, PAYLOAD_BYTES, ROOT, links_of, machine, payload_of, record_of

TOKENS = tuple(range(4 * 6 + 2))
"""Six blocks and a half."""


def store(tiers: LowerTiers, tokens: tuple[int, ...] = TOKENS, rank: Rank = Rank.EXPECTED) -> None:
    tiers.store(links_of(tokens), payload_of, rank)


def found(tiers: LowerTiers, tokens: tuple[int, ...] = TOKENS) -> int:
    """Tokens that are found; they must be right."""
    end = 0
    for record in tiers.find(ROOT, tokens, 0):
        assert record.link.start == end
        assert bytes(record.payload) == payload_of(record.link)
        end = record.link.end
    return end


def disk(folder: Path, capacity_blocks: int = 100, peers: tuple[Path, ...] = ()) -> ColdTier:
    return ColdTier([DiskStore(folder, capacity_blocks * (PAYLOAD_BYTES + 100), peers)])


def test_what_one_engine_stores_every_engine_finds() -> None:
    with machine(32) as (first, second):
        store(first)
        assert found(second) == len(TOKENS)
        assert (second.counters.moves, second.counters.moved_tokens) == (1, len(TOKENS))
        assert (second.counters.host.hits, second.counters.host.hit_tokens) == (7, len(TOKENS))
        assert found(first) == len(TOKENS)
        assert first.counters.moves == 0


def test_partial_block_serves_who_goes_on() -> None:
    with machine(32) as (first, second):
        store(first, TOKENS)
        assert found(second, (*TOKENS, 90, 91, 92)) == len(TOKENS)
        assert found(second, (*TOKENS[:9], 90, 91, 92)) == 8
        assert found(second, TOKENS[:25]) == 24, "nor is more than what was asked for"


def test_another_root_finds_nothing() -> None:
    """P02, P05: another tenant, version, adapter or base has another root (kv.keys)."""
    with machine(32) as (first, second):
        store(first)
        assert list(second.find(b"root-of-tenant-b", TOKENS, 0)) == []


def test_released_blocks_are_free_and_the_prompt_stays() -> None:
    with machine(32) as (first, second):
        store(first)
        second.release(list(second.path_to(links_of(TOKENS)[-1].key))[::-1], prompt_tokens=9)
        assert first.host.used_bytes == 2 * PAYLOAD_BYTES
        assert second.counters.host.released == 5
        assert found(first) == len(TOKENS), "as long as nobody needs the room"
        for start in range(100, 900, 4):
            store(first, tuple(range(start, start + 4)), Rank.KEPT)
        assert found(first) < len(TOKENS)


def test_release_leaves_what_was_used_since() -> None:
    """The handle of an earlier chunk is released after the next has stored its own, here with a whole block for its end."""
    with machine(64) as (first, second):
        stamp_us = first.store(links_of(TOKENS[:16]), payload_of, Rank.EXPECTED)
        time.sleep(0.001)
        later_us = second.store(links_of(TOKENS), payload_of, Rank.EXPECTED)
        first.release(links_of(TOKENS[:16]), 4, stamp_us)
        assert first.host.used_bytes + second.host.used_bytes == 7 * PAYLOAD_BYTES
        first.release(links_of(TOKENS), 4, later_us)
        assert first.host.used_bytes + second.host.used_bytes == PAYLOAD_BYTES


def test_expected_blocks_that_must_leave_go_to_disk_and_come_back(tmp_path: Path) -> None:
    with machine(4, 2, [disk(tmp_path / "0"), disk(tmp_path / "1", peers=(tmp_path / "0",))]) as (first, second):
        store(first)
        first.flush()
        assert first.counters.cold.writes >= 3
        assert found(first) == len(TOKENS)
        assert found(second) == len(TOKENS), "from the other's memory and the other's folder"
        assert second.counters.cold.hits >= 3


def test_blocks_are_fetched_ahead(tmp_path: Path) -> None:
    with machine(16, 1, [disk(tmp_path)]) as (tiers,):
        for link in links_of(TOKENS):
            assert tiers.cold is not None
            tiers.cold.put_later(record_of(link))
        tiers.flush()
        tiers.expect(ROOT, TOKENS, 0)
        tiers.flush()
        assert tiers.counters.prefetched == 7
        assert found(tiers) == len(TOKENS)
        assert tiers.counters.cold.hits == 0
        assert tiers.counters.host.hits == 7


def test_release_empties_the_disk(tmp_path: Path) -> None:
    with machine(4, 1, [disk(tmp_path)]) as (tiers,):
        store(tiers)
        tiers.release(links_of(TOKENS), 0, clock_us())
        tiers.flush()
        assert not list(tmp_path.iterdir())
        assert tiers.host.used_bytes == 0
        tiers.measure()
        assert tiers.counters.cold.used_bytes == 0


@pytest.mark.parametrize("damage", ["truncate", "flip", "empty", "lose", "swap"])
def test_damaged_file_is_a_miss(tmp_path: Path, damage: str) -> None:
    links = links_of(TOKENS)
    with machine(0, 1, [disk(tmp_path)]) as (tiers,):
        for link in links:
            assert tiers.cold is not None
            tiers.cold.put_later(record_of(link))
        tiers.flush()
        path = tmp_path / links[3].key.hex()
        data = bytearray(path.read_bytes())
        if damage == "lose":
            path.unlink()
        elif damage == "flip":
            data[1000] ^= 1
            path.write_bytes(data)
        elif damage == "swap":
            path.write_bytes(encode(record_of(links[4])))
        else:
            path.write_bytes(data[: len(data) // 2 if damage == "truncate" else 0])
        assert found(tiers) == 12
        assert tiers.counters.cold.corrupt == (damage != "lose")
        assert not path.exists(), "removed, so that a good one can take its place"


class FailingStore:
    """Every call fails as a full or broken disk does."""

    used_bytes = 0

    def get(self, key: bytes) -> bytes | None:
        raise OSError(errno.EIO, "input/output error")

    def put(self, key: bytes, data: bytes) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    def remove(self, key: bytes) -> None:
        raise OSError(errno.EROFS, "read-only file system")

    def close(self) -> None:
        pass


def test_failing_store_reaches_nobody() -> None:
    """P59: every step fails, and the accounts still sum."""
    with machine(4, 1, [ColdTier([FailingStore()])]) as (tiers,):
        store(tiers)
        tiers.expect(ROOT, TOKENS, 0)
        tiers.flush()
        assert found(tiers) < len(TOKENS)
        tiers.release(links_of(TOKENS), 0, clock_us())
        tiers.flush()
        assert tiers.counters.cold.failures >= 3 + 7
        assert tiers.cold is not None
        assert not tiers.cold._pending
        assert tiers.host.used_bytes == 0


def test_an_error_that_no_store_should_raise_keeps_nobody_waiting() -> None:
    """A thread that cannot be started, say."""

    class Odd(FailingStore):
        def put(self, key: bytes, data: bytes) -> None:
            raise RuntimeError("can't start new thread")

    cold, log = ColdTier([Odd()], max_pending=2), BlockLog("disk")
    cold.tell(log)
    for link in links_of(range(BLOCK * 5)):
        cold.put_later(record_of(link))
        cold.flush()
    assert not cold._pending
    assert (cold.counters.failures, cold.counters.writes, cold.counters.written_bytes) == (0, 5, 0)
    told = log.take()
    assert told is not None
    assert not told.came
    cold.close()


def test_second_store_serves_what_the_first_has_not(tmp_path: Path) -> None:
    far = DiskStore(tmp_path, 10**6)
    for link in links_of(TOKENS):
        far.put(link.key, encode(record_of(link)))
    with machine(4, 1, [ColdTier([FailingStore(), far])]) as (tiers,):
        assert found(tiers) == len(TOKENS)


def test_queue_of_writes_is_bounded(tmp_path: Path) -> None:
    cold, may_write = disk(tmp_path), threading.Event()
    cold._writer.submit(may_write.wait, 120)
    links = links_of(range(BLOCK * (MAX_PENDING + 5)))
    for link in links:
        cold.put_later(record_of(link))
    assert cold.counters.failures == 5
    assert cold.get(links[0].key) == record_of(links[0]), "what waits is found"
    may_write.set()
    cold.flush()
    assert cold.counters.writes == MAX_PENDING
    cold.close()
