"""The folder is bounded, survives kills, and is read by several processes."""

import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plait.kv.disk_store import DiskStore, clear_folder

KEYS = [bytes([number]) * 16 for number in range(8)]


@given(st.lists(st.tuples(st.sampled_from(["put", "get", "remove"]), st.sampled_from(KEYS), st.integers(1, 60)), max_size=30))
@settings(max_examples=30, deadline=None)
def test_against_a_dictionary(tmp_path_factory: pytest.TempPathFactory, calls: list[tuple[str, bytes, int]]) -> None:
    folder = tmp_path_factory.mktemp("disk")
    store, oracle = DiskStore(folder, 100), dict[bytes, bytes]()
    for number, (name, key, size) in enumerate(calls):
        data = bytes([number]) * size
        if name == "put":
            store.put(key, data)
            oracle[key] = data
            assert store.get(key) == data
        elif name == "get":
            assert store.get(key) in (None, oracle.get(key))
        else:
            store.remove(key)
            oracle.pop(key, None)
            assert store.get(key) is None
        assert store.used_bytes == sum(path.stat().st_size for path in folder.iterdir()) <= 100
    assert DiskStore(folder, 100).used_bytes == store.used_bytes


def test_least_recently_used_makes_room(tmp_path: Path) -> None:
    store = DiskStore(tmp_path / "a", 100)
    for number, key in enumerate(KEYS[:3]):
        store.put(key, bytes(30))
        os.utime(store.folder / key.hex(), (number, number))
        store._files[key.hex()] = (30, float(number))
    reader = DiskStore(tmp_path / "b", 100, [tmp_path / "a"])
    assert reader.get(KEYS[0]) == bytes(30), "a peer's use counts"
    store.put(KEYS[3], bytes(30))
    assert [store.get(key) is not None for key in KEYS[:4]] == [True, False, True, True]
    assert store.evictions == 1


def test_too_large_is_not_stored(tmp_path: Path) -> None:
    store = DiskStore(tmp_path, 100)
    store.put(KEYS[0], bytes(60))
    store.put(KEYS[1], bytes(101))
    assert store.get(KEYS[0]) == bytes(60)
    assert store.get(KEYS[1]) is None


@pytest.fixture
def file_size_limit() -> Iterator[None]:
    """No file of this process may grow beyond a thousand bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_full_disk_leaves_nothing_behind(tmp_path: Path, file_size_limit: None) -> None:
    store = DiskStore(tmp_path, 10_000)
    store.put(KEYS[0], bytes(900))
    with pytest.raises(OSError, match="File too large"):
        store.put(KEYS[1], bytes(2000))
    assert store.get(KEYS[1]) is None
    assert store.used_bytes == 900
    assert [path.name for path in tmp_path.iterdir()] == [KEYS[0].hex()]


def test_what_a_kill_left_half_written_is_removed(tmp_path: Path) -> None:
    DiskStore(tmp_path, 100).put(KEYS[0], b"whole")
    (tmp_path / f"{KEYS[1].hex()}.1.part").write_bytes(b"half")
    store = DiskStore(tmp_path, 100)
    assert store.get(KEYS[0]) == b"whole"
    assert len(list(tmp_path.iterdir())) == 1
    clear_folder(tmp_path)
    assert not list(tmp_path.iterdir())


def test_clearing_leaves_what_is_not_ours(tmp_path: Path) -> None:
    (tmp_path / "rollout-0").mkdir()
    DiskStore(tmp_path / "rollout-1", 100).put(KEYS[0], b"block")
    (tmp_path / "notes.txt").write_text("mine")
    clear_folder(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
    clear_folder(tmp_path / "missing")


def test_lost_folder_is_an_error_to_the_writer_and_a_miss_to_the_reader(tmp_path: Path) -> None:
    store = DiskStore(tmp_path / "gone", 100)
    store.folder.rmdir()
    assert store.get(KEYS[0]) is None
    store.remove(KEYS[0])
    with pytest.raises(FileNotFoundError):
        store.put(KEYS[0], b"data")
