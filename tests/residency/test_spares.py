"""Files that nobody uses any more are written over, and by nobody as long as anybody may read them."""

import errno
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from plait.residency import content_file
from plait.residency.host_store import HostStore
from plait.residency.manager import StateManager
from plait.residency.spares import Spares
from plait.residency.tier import Tier
from tests.residency.audit import LARGE_BYTES, audit, opened, same, tensors

ROOM = 3 * LARGE_BYTES


def inodes(manager: StateManager, folder: Path, tier: Tier) -> set[int]:
    """Of what a tier keeps, used or spare."""
    assert manager._stores.host is not None
    place = manager._stores.host._own if tier is Tier.HOST else folder / "disk" / "contents"
    return {path.stat().st_ino for path in place.iterdir() if path.stat().st_size}


@pytest.mark.parametrize("tier", [Tier.HOST, Tier.DISK])
def test_what_takes_turns_goes_into_the_same_files(tier: Tier, folder: Path) -> None:
    budgets = {Tier.DEVICE: ROOM, Tier.HOST: None if tier is Tier.HOST else 0, Tier.DISK: None}
    manager = opened(folder, budgets)
    expected = {name: tensors(seed) for seed, name in enumerate(("one", "other"))}
    for name, group in expected.items():
        manager.register(name, {key: tensor.clone() for key, tensor in group.items()})
    files: list[set[int]] = []
    for turn in range(8):
        name = ("one", "other")[turn % 2]
        found = manager.acquire(name, writable=True)
        assert same(found, expected[name])
        for key, tensor in found.items():
            tensor.add_(1)
            expected[name][key] = tensor.clone()
        manager.release(name)
        audit(manager, folder)
        files.append(inodes(manager, folder, tier))
    assert files[3] == files[4] == files[5] == files[6] == files[7], "none is made anew"
    manager.close()
    again = opened(folder, budgets)
    names = {path.name for path in (folder / "disk" / "contents").iterdir()}
    assert names == {key for name in again.names() for key in again.group(name).contents}, "spare ones are gone"
    again.close()


def test_what_another_process_has_is_not_written_over(folder: Path) -> None:
    mine, theirs = HostStore(folder), HostStore(folder)
    key = mine.write("~0", torch.full((5000,), 1, dtype=torch.uint8))
    assert theirs.write("~0", torch.full((5000,), 1, dtype=torch.uint8)) == key
    mine.sync([key])
    view = theirs.view(key, 5000)
    mine.remove(key)
    assert not mine.spares.num_bytes
    mine.write("~1", torch.full((5000,), 2, dtype=torch.uint8))
    assert view.eq(1).all()
    theirs.remove(key)
    assert not theirs.spares.num_bytes, "somebody may still read it"
    mine.close()
    theirs.close()


def test_what_somebody_still_reads_or_has_cut_is_not_written_over(folder: Path) -> None:
    store = HostStore(folder)
    keys = [store.write("~0", torch.full((5000,), number, dtype=torch.uint8)) for number in (1, 2, 3)]
    store.sync(keys)
    view = store.view(keys[0], 5000)
    os.truncate(store._own / keys[1], 4096)
    for key in keys:
        assert store.remove(key)
    assert store.spares.num_bytes == 5000, "the third"
    (spare,) = store._own.iterdir()
    os.truncate(spare, 4096)
    assert store.view(store.write("~1", torch.full((5000,), 4, dtype=torch.uint8)), 5000).eq(4).all()
    assert view.eq(1).all()
    assert not store.spares.num_bytes
    store.close()


def test_spare_files_leave_where_there_is_no_room(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the budget says."""
    manager = opened(folder, {Tier.DEVICE: ROOM, Tier.HOST: None, Tier.DISK: None})
    for seed in range(2):
        manager.register(f"g{seed}", tensors(seed))
    manager.acquire("g1", writable=True)
    manager.release("g1")
    assert manager._stores.host is not None
    spares = manager._stores.host.spares
    assert spares.num_bytes > LARGE_BYTES
    manager.register("other", tensors(5, num_large=1))  # of what is spare, some has its sizes
    write = content_file.write_over

    def full(*arguments: Any) -> str:
        if spares.num_bytes:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(*arguments)

    monkeypatch.setattr(content_file, "write_over", full)
    with manager._mover.moving("g1"):
        manager._mover.leave("g1", Tier.HOST)
    assert not spares.num_bytes
    assert same(manager.acquire("g1"), tensors(1))
    manager.release("g1")
    audit(manager, folder)
    manager.close()


def test_buffers_of_the_device_are_filled_again_unless_somebody_has_them(folder: Path) -> None:
    manager = opened(folder, {Tier.DEVICE: ROOM, Tier.HOST: None, Tier.DISK: None})
    for seed in range(3):
        manager.register(f"g{seed}", tensors(seed))
    places: list[set[int]] = []
    for seed in (1, 2, 0, 1):
        found = manager.acquire(f"g{seed}")
        places.append({found[f"large{number}"].data_ptr() for number in range(2)})
        manager.release(f"g{seed}")
        assert same(found, tensors(seed))
        manager.acquire(f"g{seed}", writable=seed == 2)
        manager.release(f"g{seed}")
        if seed == 0:
            kept, array = found["large0"], found["large1"].numpy()
        found.clear()
    assert places[1] == places[2], "the same memory"
    assert not places[2] & places[3], "which is somebody's"
    assert torch.equal(kept, tensors(0)["large0"])
    assert (array == tensors(0)["large1"].numpy()).all()
    audit(manager, folder)
    manager.close()


@given(
    sizes=st.lists(st.sampled_from([1, 2, 5]), max_size=12),
    wanted=st.lists(st.sampled_from([1, 2, 5, 7]), max_size=8),
    other_bytes=st.integers(-5, 40),
)
def test_those_to_be_taken_are_kept_and_others_within_a_bound(sizes: list[int], wanted: list[int], other_bytes: int) -> None:
    removed: list[int] = []
    spares = Spares(removed.append)
    for num_bytes in sizes:
        spares.give(num_bytes, num_bytes)
    spares.keep(wanted, other_bytes)
    kept, before, to_take = Counter(spares.items), Counter(sizes), Counter(wanted)
    assert kept + Counter(removed) == before
    assert spares.num_bytes == sum(kept.elements())
    assert all(kept[size] >= min(before[size], to_take[size]) for size in before)
    others_bytes = sum((kept - to_take).elements())
    assert others_bytes <= max(0, other_bytes)
    assert not removed or others_bytes + min(removed) > other_bytes, "none was removed that had a place"
