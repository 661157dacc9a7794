"""Processes of a machine share equal contents in memory, and each takes its own away."""

import os
import signal
from pathlib import Path

import pytest
import torch
from torch import Tensor

from plait.residency import content_file
from plait.residency.host_store import HostStore, other_key
from plait.types.errors import StateError


def buffer_of(number: int) -> Tensor:
    return torch.full((5000,), number, dtype=torch.uint8)


def inodes(folder: Path) -> int:
    return len({path.stat().st_ino for path in folder.rglob("*") if path.is_file() and path.name != "lock"})


def test_equal_contents_of_two_processes_take_memory_once(folder: Path) -> None:
    first, second = HostStore(folder), HostStore(folder)
    key = first.write("~0", buffer_of(1))
    assert second.write("~7", buffer_of(1)) == key
    assert inodes(folder) == 1
    first.remove(key)
    found = torch.empty(5000, dtype=torch.uint8)
    second.read(key, found)
    assert torch.equal(found, buffer_of(1))
    second.remove(key)
    second.spares.clear()
    assert inodes(folder) == 0
    first.close()
    second.close()


def test_other_bytes_with_the_same_digest_get_another_key(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Same:
        def update(self, part: memoryview) -> None:
            pass

        def hexdigest(self) -> str:
            return "same"

    monkeypatch.setattr(content_file.xxhash, "xxh3_128", Same)
    first, second = HostStore(folder), HostStore(folder)
    assert [first.write("~0", buffer_of(number)) for number in (1, 2, 1)] == ["same", "same-1", "same"]
    assert second.write("~0", buffer_of(2)) == "same-1"
    assert other_key("same-1") == "same-2"
    for key, number in (("same", 1), ("same-1", 2)):
        assert first.holds(key, buffer_of(number))
        assert not first.holds(key, buffer_of(3 - number))
    first.close()
    assert second.holds("same-1", buffer_of(2))
    second.close()
    assert inodes(folder) == 0


def test_a_killed_process_leaves_its_memory_to_those_who_share_it_only(folder: Path) -> None:
    mine = HostStore(folder)
    shared = mine.write("~0", buffer_of(1))
    child = os.fork()
    if child == 0:
        theirs = HostStore(folder)
        theirs.write("~0", buffer_of(1))
        theirs.write("~1", buffer_of(2))
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    assert inodes(folder) == 2
    next_one = HostStore(folder)
    assert inodes(folder) == 1
    assert mine.holds(shared, buffer_of(1))
    next_one.close()
    mine.close()


def test_what_is_missing_is_named(folder: Path) -> None:
    store = HostStore(folder)
    with pytest.raises(StateError, match="abc"):
        store.read("abc", buffer_of(0))
    with pytest.raises(StateError, match="abc"):
        store.holds("abc", buffer_of(0))
    assert store.remove("abc"), "it is gone"
    store.close()


def test_other_users_cannot_look_into_it(tmp_path: Path) -> None:
    HostStore(tmp_path / "memory").close()
    assert (tmp_path / "memory").stat().st_mode & 0o077 == 0


def test_the_folder_of_another_user_is_not_used(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a place where all may write, anybody may have made it first."""
    HostStore(folder).close()
    monkeypatch.setattr(os, "getuid", lambda: os.geteuid() + 1)
    with pytest.raises(StateError, match="belongs to another user"):
        HostStore(folder)
    mine = folder.parent / f"{folder.name}-link"
    mine.symlink_to(folder)
    try:
        with pytest.raises(StateError, match="belongs to another user"):
            HostStore(mine)
    finally:
        mine.unlink()
