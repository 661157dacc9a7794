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
from plait.types.chunks import PullFrom
from plait.types.sampling import SamplingParams
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
