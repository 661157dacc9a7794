"""Engines that share no memory find each other's blocks in the store; whatever happens to it is a miss and a counter."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from plait.kv.disk_store import DiskStore
from plait.kv.guarded_store import GuardedStore
from plait.kv.host_tier import HostTier, clock_us
from plait.kv.segment import Rank
from plait.kv.store_tier import StoreTier
from plait.kv.tiers import LowerTiers
from tests.kv.blocks import BLOCK, PAYLOAD_BYTES, ROOT, links_of, payload_of, segment_bytes
from tests.kv.test_tiers import found, store

TOKENS = tuple(range(4 * 6 + 2))
"""Six blocks and a half."""
LIMIT_S = 60.0
"""Nothing here takes so long unless it hangs."""


@contextmanager
def nodes(folder: Path, num_nodes: int = 2, num_slots: int = 64) -> Iterator[list[LowerTiers]]:
    """The lower tiers of engines on several nodes, which share a folder."""
    folders = [folder / str(number) for number in range(num_nodes)]
    made = [node(folders[n], folders[:n] + folders[n + 1 :], num_slots) for n in range(num_nodes)]
    yield made
    for tiers in made:
        tiers.close()


def node(own: Path, others: Sequence[Path], num_slots: int) -> LowerTiers:
    guarded = GuardedStore(own.name, lambda: DiskStore(own, 10**6, others), LIMIT_S)
    tier = StoreTier(guarded, 10**6, PAYLOAD_BYTES)
    return LowerTiers(HostTier.alone(segment_bytes(num_slots), PAYLOAD_BYTES), None, BLOCK, tier)


def pull(tiers: LowerTiers, tokens: tuple[int, ...] = TOKENS) -> None:
    pulled = tiers.expect(ROOT, tokens, 0)
    if pulled is not None:
        pulled.wait(LIMIT_S)
        assert pulled.is_over


def test_what_one_node_stores_another_pulls(tmp_path: Path) -> None:
    with nodes(tmp_path) as (first, second):
        store(first)
        first.flush()
        assert found(second) == 0, "it reads no memory of the other's, and nothing far away while others decode"
        pull(second)
        assert found(second) == len(TOKENS)
        assert (second.counters.moves, second.counters.moved_tokens) == (1, len(TOKENS))
        told = second.counters.store
        assert (told.hits, told.hit_tokens, told.misses, second.counters.prefetched) == (7, len(TOKENS), 0, 7)
        assert told.read_bytes == first.counters.store.written_bytes > 7 * PAYLOAD_BYTES
        assert found(second) == len(TOKENS)
        assert (told.hits, second.counters.host.hits) == (7, 7), "from then on it is here"
        assert second.expect(ROOT, TOKENS, 0) is None
        first.measure()
        assert first.counters.store.used_bytes == told.read_bytes


def test_what_nobody_has_is_one_miss(tmp_path: Path) -> None:
    with nodes(tmp_path) as (first, second):
        store(first, TOKENS[:12])
        first.flush()
        pull(second)
        assert found(second) == 12
        assert second.counters.store.misses == 1


def test_blocks_stay_as_long_as_a_generation_goes_on_anywhere(tmp_path: Path) -> None:
    with nodes(tmp_path, 3) as (first, second, third):
        stamp_us = first.store(links_of(TOKENS), payload_of, Rank.EXPECTED)
        first.flush()
        pull(second)
        longer = (*TOKENS, *range(100, 120))
        second.store(links_of(longer), payload_of, Rank.EXPECTED)
        second.release([links_of(TOKENS)[-1]], 4)
        first.release(links_of(TOKENS), 4, stamp_us, went_on=True)
        for tiers in (first, second):
            tiers.flush()
        assert first.host.used_bytes == PAYLOAD_BYTES, "the prompt's"
        pull(third, longer)
        assert found(third, longer) == len(longer)
        assert not list(tmp_path.glob(f"*/{links_of(TOKENS)[-1].key.hex()}")), "the half block has become a whole one"


def test_the_end_of_a_generation_empties_the_store_but_for_the_prompt(tmp_path: Path) -> None:
    with nodes(tmp_path) as (first, second):
        store(first)
        first.flush()
        pull(second)
        second.release(links_of(TOKENS), 9)
        second.flush()
        assert {path.name for path in tmp_path.glob("*/*")} == {link.key.hex() for link in links_of(TOKENS)[:2]}
        assert second.host.used_bytes == 2 * PAYLOAD_BYTES
        first.release(links_of(TOKENS), 0, clock_us())
        first.flush()
        assert not list(tmp_path.glob("*/*"))


@pytest.mark.parametrize("damage", ["truncate", "flip", "empty", "lose", "swap"])
def test_a_damaged_block_is_a_miss(tmp_path: Path, damage: str) -> None:
    links = links_of(TOKENS)
    with nodes(tmp_path) as (first, second):
        store(first)
        first.flush()
        path = tmp_path / "0" / links[3].key.hex()
        data = bytearray(path.read_bytes())
        data[1000] ^= 1
        other = path.with_name(links[4].key.hex()).read_bytes()
        changed: dict[str, bytes] = {"truncate": bytes(data[:2000]), "flip": bytes(data), "empty": b"", "swap": other}
        path.unlink() if damage == "lose" else path.write_bytes(changed[damage])
        pull(second)
        assert found(second) == 12
        assert second.counters.store.corrupt == (damage != "lose")
        assert not path.exists()


def test_a_store_that_goes_away_is_turned_off_and_used_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with nodes(tmp_path / "here") as (first, second):
        store(first)
        first.flush()
        (tmp_path / "here").rename(tmp_path / "away")
        (tmp_path / "here").write_text("no folder")
        assert second.far is not None
        guarded = second.far._store
        guarded._retry_s = 0.05
        pull(second)
        store(second, tuple(range(900, 912)))
        second.flush()
        assert (found(second), guarded.is_on) == (0, False)
        assert second.expect(ROOT, TOKENS, 0) is None, "nobody waits for a store that is off"
        assert second.counters.store.failures >= 3
        (tmp_path / "here").unlink()
        (tmp_path / "away").rename(tmp_path / "here")
        time.sleep(0.1)
        store(second, tuple(range(800, 804)))
        second.flush()
        assert guarded.is_on, "what is written tries whether it is back"
        pull(second)
        assert found(second) == len(TOKENS)
        assert sum("is off" in record.message for record in caplog.records) == 1


def test_a_slow_store_holds_nobody_up_for_longer_than_the_limit(tmp_path: Path) -> None:
    with nodes(tmp_path) as (first, second):
        store(first)
        first.flush()
        assert second.far is not None
        guarded, read = second.far._store, DiskStore.get
        asked, may_answer = list[bytes](), threading.Event()

        def slow_get(self: DiskStore, key: bytes) -> bytes | None:
            """Two blocks come, and then no more."""
            asked.append(key)
            if len(asked) == 2:
                guarded.timeout_s = 0.3
            if len(asked) > 2:
                assert may_answer.wait(2 * LIMIT_S)
            return read(self, key)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(DiskStore, "get", slow_get)
            waited = second.expect(ROOT, TOKENS, 0)
            assert waited is not None
            assert second.expect(ROOT, TOKENS, 0) is waited, "siblings wait for one pull"
            assert waited.until_s <= time.monotonic() + LIMIT_S
            until(lambda: len(asked) > 2)
            waited.until_s = time.monotonic()
            waited.wait(LIMIT_S)
            assert waited.is_over
            assert found(second) == 2 * BLOCK, "what has come by then is used"
            until(lambda: not guarded.is_on)
            guarded._off_until_s = None
            pull(second)
            until(lambda: not guarded.is_on)
            assert second.expect(ROOT, TOKENS, 0) is None
            may_answer.set()


def until(condition: Callable[[], object]) -> None:
    deadline_s = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def test_a_pull_waits_a_moment_for_what_is_still_on_its_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with nodes(tmp_path) as (first, second):
        assert first.far is not None
        first.far._writer.submit(time.sleep, 0.02)
        store(first)
        with monkeypatch.context() as patch:
            patch.setattr("plait.kv.tiers.PATIENCE_S", LIMIT_S)
            pulled = second.expect(ROOT, TOKENS, 0, is_stored=True)
        assert pulled is not None
        pulled.wait(LIMIT_S)
        assert (found(second), second.counters.store.misses) == (len(TOKENS), 0)
        begin_s = time.monotonic()
        nothing = second.expect(ROOT, tuple(range(500, 520)), 0, is_stored=True)
        assert nothing is not None
        nothing.wait(LIMIT_S)
        assert time.monotonic() - begin_s < LIMIT_S
        assert second.counters.store.misses == 1


def test_nothing_is_lost_between_the_queue_of_writes_and_the_store(tmp_path: Path) -> None:
    """A block that still waits to be written is found by its own engine; one that is released meanwhile is not written."""
    with nodes(tmp_path, num_slots=0) as (first, second):
        assert first.far is not None
        may_write = threading.Event()
        first.far._writer.submit(may_write.wait, LIMIT_S)
        store(first)
        assert first.far.get(links_of(TOKENS)[0].key) is not None
        first.release(links_of(TOKENS), 0, clock_us())
        may_write.set()
        first.flush()
        assert not list(tmp_path.glob("*/*"))
        pull(second)
        assert found(second) == 0
