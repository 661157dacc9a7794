"""Blocks go through a real Mooncake store on loopback, between two processes; skipped where its package or library is missing."""

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from plait.kv.block_record import encode
from plait.kv.cold_tier import ColdTier
from plait.kv.guarded_store import GuardedStore
from plait.kv.mooncake_store import MooncakeStore
from plait.types.errors import ConfigError
from tests.kv.blocks import BLOCK, ROOT, links_of, machine, record_of
from tests.kv.mooncake import running_master

TOKENS = tuple(range(4 * 6 + 2))

OTHER_NODE = """
import sys
from plait.kv.block_record import encode
from plait.kv.mooncake_store import MooncakeStore
from tests.kv.blocks import links_of, record_of

store = MooncakeStore(sys.argv[1], "127.0.0.1", 2**24, 2**24)
for link in links_of(range(4 * 6 + 2)):
    store.put(link.key, encode(record_of(link)))
print("stored", flush=True)
sys.stdin.read()
store.close()
"""


@pytest.fixture(scope="module")
def master() -> Iterator[str]:
    """The address of a master that listens on loopback only."""
    with running_master() as master:
        yield master.address


def test_blocks_of_another_node_are_found(master: str) -> None:
    other = subprocess.Popen([sys.executable, "-c", OTHER_NODE, master], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    store = MooncakeStore(master, "127.0.0.1", 2**24, 2**24)
    assert other.stdout is not None
    while (line := other.stdout.readline()).strip() != "stored":
        assert line, "the other node ended"
    with machine(32, 1, [ColdTier([store])]) as (tiers,):
        assert [record.link for record in tiers.find(ROOT, TOKENS, 0)] == links_of(TOKENS)
        assert tiers.counters.cold.hits == 7
        link, strange = links_of(TOKENS)[0], links_of(range(90, 94))[0]
        assert store.get(strange.key) is None
        store.remove(strange.key)
        store.put(link.key, encode(record_of(link)))
        store.put(strange.key, b"not a block")
        assert tiers.cold is not None
        assert tiers.cold.get(strange.key) is None
        assert tiers.counters.cold.corrupt == 1
        other.communicate()


def test_store_is_bounded_and_what_it_lost_is_missing(master: str) -> None:
    store = MooncakeStore(master, "127.0.0.1", 2**24, 2**24)
    links = links_of(range(BLOCK * 40))
    for number, link in enumerate(links):
        try:
            store.put(link.key, bytes([number]) * 2**20)
        except OSError:
            time.sleep(0.2)  # it makes room in the background
    found = [store.get(link.key) for link in links]
    assert sum(data is not None for data in found) <= 32, "what two processes lent, at most"
    assert all(data in (None, bytes([number]) * 2**20) for number, data in enumerate(found))
    store.close()


def test_a_lost_master_costs_its_time_limit_and_comes_back() -> None:
    link = links_of(range(BLOCK))[0]
    with running_master() as master:
        store = GuardedStore("m", lambda: MooncakeStore(master.address, "127.0.0.1", 2**24, 2**24), 1.0, retry_s=0.2)
        store.put(link.key, b"block")
        assert store.get(link.key) == b"block"
        store.remove(link.key)
        assert store.get(link.key) is None, "although it was read a moment ago"
        for lose in (master.kill, master.stop):
            lose()
            begin_s = time.monotonic()
            while store.is_on:
                with contextlib.suppress(OSError):
                    store.put(link.key, b"block")
            assert time.monotonic() - begin_s < 60
            master.kill()
            master.start()
            came_back(store, link.key)
        store.close()


def came_back(store: GuardedStore, key: bytes) -> None:
    """The library gives up after 4 to 30 seconds, and lends its memory to the new master some seconds later."""
    deadline_s = time.monotonic() + 120
    while True:
        with contextlib.suppress(OSError):
            store.put(key, b"block")
            if store.get(key) == b"block":
                return
        assert time.monotonic() < deadline_s
        time.sleep(0.1)


def test_missing_library_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mooncake.store", None)
    with pytest.raises(ConfigError, match=r"plait\[mooncake\].*libibverbs1"):
        MooncakeStore("127.0.0.1:1", "127.0.0.1", 2**24, 2**24)
