"""What the controller says to lie below is brought up before a chunk starts, while others decode."""

import threading
from pathlib import Path

import pytest
from msgspec.structs import replace

from plait.engine.engine import Engine
from plait.kv import tiers
from plait.kv.block_log import DEVICE, DISK, HOST
from plait.kv.chain import chain
from plait.kv.disk_store import DiskStore
from plait.kv.keys import KEY_BYTES
from plait.kv.pool import BLOCK_TOKENS
from plait.kv.segment import Rank
from plait.types.chunks import PullFrom
from plait.types.sampling import SamplingParams, StopReason
from tests.engine.test_engine_tiers import PROMPT, node, run_chunk
from tests.engine.tiny import Driver, Outcome, Request, assert_same, model

MOVED = Request("moved", PROMPT, SamplingParams(12, seed=3), "t0")


def move_to_disk(engine: Engine, outcome: Outcome) -> int:
    """All that is stored of the generation; the number of blocks."""
    assert engine.kv.lower is not None
    assert engine.kv.lower.cold is not None
    host, root = engine.kv.lower.host, engine._root(MOVED.chunk())
    keys = [link.key for link in chain(root, (*PROMPT, *outcome.tokens)[:-1], BLOCK_TOKENS)]
    for key in keys:
        record, slot = host.read(key)[0], host._own.find(key)
        assert record is not None
        assert slot is not None
        engine.kv.lower.cold.put_later(record)
        host._own._set_key(slot, bytes(KEY_BYTES))
    engine.kv.lower.flush()
    return len(keys)


@pytest.mark.parametrize("is_there", [True, False])
def test_a_pull_from_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_there: bool) -> None:
    monkeypatch.setattr(tiers, "TIMEOUT_S", 60.0)
    there, outcome = Request("there", tuple(range(20)), SamplingParams(200, seed=4), "t1"), Outcome()
    may_read, read = threading.Event(), DiskStore.get

    def held_get(self: DiskStore, key: bytes) -> bytes | None:
        assert may_read.wait(60)
        return read(self, key)

    with node(2, folder=tmp_path) as (first, second):
        run_chunk(first, MOVED, outcome, 6)
        num_blocks = move_to_disk(first, outcome)
        driver = Driver(second)
        driver.submit(there)
        while not second.rows:
            driver.step()
        monkeypatch.setattr(DiskStore, "get", held_get)
        for path in [] if is_there else tmp_path.glob("*/*"):
            path.unlink()
        second.submit(replace(MOVED.chunk(outcome.tokens), pull=PullFrom(DISK, len(PROMPT) + 5)))
        driver.requests["moved"], driver.outcomes["moved"] = MOVED, outcome
        num_decoded = second.num_decoded_tokens
        for _ in range(5):
            driver.step()
        assert [row.chunk.request_id for row in second.rows] == ["there"]
        assert second.num_decoded_tokens == num_decoded + 5
        may_read.set()
        found, counters = driver.run(), second.kv.counters
        assert found["moved"].results[-1].cached_tokens == (len(PROMPT) + 5 if is_there else 0)
        assert (counters.pulls, counters.pulled_bytes) == (is_there, is_there * num_blocks * second.kv.codec.payload_bytes)
        assert_same(model(), MOVED, found["moved"])
        assert_same(model(), there, found["there"])


def test_an_engine_tells_what_it_has_in_each_tier(tmp_path: Path) -> None:
    with node(1, folder=tmp_path) as (engine,):
        logs = {log.tier: log for log in engine.kv.tell()}
        outcome = Outcome()
        run_chunk(engine, MOVED, outcome, 6)
        news = {tier: log.take() for tier, log in logs.items()}
        root = engine._root(MOVED.chunk())
        keys = {link.key for link in chain(root, (*PROMPT, *outcome.tokens)[:-1], BLOCK_TOKENS)}
        for tier in (DEVICE, HOST):
            told = news[tier]
            assert told is not None
            assert keys <= {told.came[start : start + KEY_BYTES] for start in range(0, len(told.came), KEY_BYTES)}
        assert news[DISK] is None


def test_nobody_expects_what_came_for_a_chunk_that_is_cancelled_before_it_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiers, "TIMEOUT_S", 60.0)
    with node(2, folder=tmp_path) as (first, second):
        outcome = Outcome()
        run_chunk(first, MOVED, outcome, 11)
        num_blocks = move_to_disk(first, outcome)
        chunk, lower = replace(MOVED.chunk(outcome.tokens), pull=PullFrom(DISK, len(PROMPT) + 10)), second.kv.lower
        assert lower is not None
        second.submit(chunk)
        lower.flush()
        second.cancel("moved")
        lower.flush()
        links = list(chain(second._root(chunk), chunk.context_tokens[:-1], BLOCK_TOKENS))
        ranks = [lower.host.rank(link.key) for link in links]
        assert (ranks, num_blocks) == ([Rank.EXPECTED] * 2 + [Rank.RELEASED] * 2, 4), "the prompt may be of use to others"
        assert {path.name for path in tmp_path.glob("*/*")} == {link.key.hex() for link in links[:2]}
        assert [result.stop for result in second.step()] == [StopReason.CANCELLED]


def test_a_pull_ends_with_the_last_chunk_that_waits_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiers, "TIMEOUT_S", 60.0)
    may_read, asked, read = threading.Event(), threading.Event(), DiskStore.get

    def held_get(self: DiskStore, key: bytes) -> bytes | None:
        asked.set()
        assert may_read.wait(60)
        return read(self, key)

    with node(2, folder=tmp_path) as (first, second):
        outcome = Outcome()
        run_chunk(first, MOVED, outcome, 11)
        move_to_disk(first, outcome)
        monkeypatch.setattr(DiskStore, "get", held_get)
        for name in ("a", "b"):
            second.submit(replace(MOVED.chunk(()), request_id=name, pull=PullFrom(DISK, len(PROMPT))))
        assert asked.wait(60)
        second.cancel("a")
        assert not second.kv.may_start("b"), "it waits for the same blocks"
        second.cancel("b")
        may_read.set()
        assert second.kv.lower is not None
        second.kv.lower._pulls.close()  # type: ignore[union-attr]
        assert second.kv.counters.prefetched == 1, "the block that was being read"
        assert [result.stop for result in second.step()] == [StopReason.CANCELLED] * 2
