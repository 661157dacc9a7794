"""Whoever hears of what comes to a tier and goes from it knows what is there."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from plait.kv.block_log import DEVICE, DISK, BlockLog, BlockNews, keys_in
from plait.kv.cold_tier import ColdTier
from plait.kv.disk_store import DiskStore
from plait.kv.pool import BlockPool
from tests.kv.blocks import BLOCK, PAYLOAD_BYTES, ROOT, links_of, record_of


def heard(known: set[bytes], log: BlockLog) -> set[bytes]:
    news = log.take() or BlockNews(log.tier)
    assert not news.is_cut
    return (known | set(keys_in(news.came))) - set(keys_in(news.went))


tokens = st.lists(st.integers(0, 1), min_size=1, max_size=5 * BLOCK)


@given(st.lists(st.tuples(st.sampled_from(["store", "release", "clear", "listen"]), tokens), max_size=30))
def test_a_pool(calls: list[tuple[str, list[int]]]) -> None:
    pool, known = BlockPool(6, BLOCK), set[bytes]()
    pool.log = log = BlockLog(DEVICE)
    for what, sequence in calls:
        if what == "store":
            pool.store(ROOT, sequence)
        elif what == "release":
            pool.release(links_of(sequence)[-1].key)
        elif what == "clear":
            pool.clear()
        else:
            known = heard(known, log)
    assert heard(known, log) == set(pool._blocks)


def test_a_disk_that_is_full_and_one_that_is_lost(tmp_path: Path) -> None:
    links = links_of(range(8 * BLOCK))
    tier, log = ColdTier([DiskStore(tmp_path / "disk", 3 * (PAYLOAD_BYTES + 100))]), BlockLog(DISK)
    tier.tell(log)
    for link in links[:6]:
        tier.put_later(record_of(link))
    tier.flush()
    tier.remove_later([links[5].key])
    tier.flush()
    known = heard(set(), log)
    assert known == {bytes.fromhex(path.name) for path in (tmp_path / "disk").iterdir()} == {link.key for link in links[3:5]}
    path = tmp_path / "disk" / links[3].key.hex()
    path.write_bytes(path.read_bytes()[:-1])
    assert tier.get(links[3].key) is None
    (tmp_path / "disk").rename(tmp_path / "away")
    tier.put_later(record_of(links[6]))
    tier.flush()
    assert heard(known, log) == {links[4].key}, "what is corrupt, or could not be written, is not there"
    tier.close()


def test_what_is_not_asked_for_is_bounded() -> None:
    log = BlockLog(DEVICE, max_changes=4)
    keys = [link.key for link in links_of(range(7 * BLOCK))]
    for key in keys:
        log.came(key)
    assert log.take() == BlockNews(DEVICE, b"".join(keys[5:]), is_cut=True)
    assert log.take() is None
    log.came(keys[0])
    log.went(keys[0])
    assert log.take() == BlockNews(DEVICE, went=keys[0])
