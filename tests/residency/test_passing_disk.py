"""A disk that is only a place for what other tiers have no room for."""

from pathlib import Path

import pytest

from plait.residency.manager import StateManager
from plait.residency.tier import Tier
from plait.types.errors import CapacityError, StateError
from tests.residency.audit import LARGE_BYTES, audit, same, tensors

ROOM = 3 * LARGE_BYTES


def passing(folder: Path, disk: int | None = None, host: int = ROOM) -> StateManager:
    budgets = {Tier.DEVICE: ROOM, Tier.HOST: host, Tier.DISK: disk}
    return StateManager(budgets, "cpu", folder / "host", folder / "disk", disk_lasts=False)


def test_nobody_waits_for_it_and_nothing_is_left_on_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manager = passing(folder)
    monkeypatch.setattr("os.fsync", lambda _: pytest.fail("nothing is to outlive a crash"))
    for seed in range(4):
        manager.register(f"g{seed}", tensors(seed))
    assert sorted(manager.tier(f"g{seed}") for seed in range(4)) == [Tier.DEVICE, Tier.DISK, Tier.DISK, Tier.HOST]
    for seed in range(4):
        assert same(manager.acquire(f"g{seed}"), tensors(seed))
        manager.release(f"g{seed}")
    manager.flush()
    audit(manager, folder)
    assert not list((folder / "disk" / "groups").iterdir())
    manager.close()
    monkeypatch.undo()
    again = passing(folder)
    assert again.names() == []
    assert not list((folder / "disk" / "contents").iterdir())
    again.close()


def test_copies_of_what_others_have_make_room(folder: Path) -> None:
    manager = passing(folder, disk=7 * LARGE_BYTES, host=0)
    for seed in range(3):
        manager.register(f"g{seed}", tensors(seed))
    manager.acquire("g1")
    assert manager._ledger.spare(Tier.DISK), "g1 is on the disk too"
    manager.register("g3", tensors(3))
    assert [manager.tier(f"g{seed}") for seed in range(4)] == [Tier.DISK, Tier.DEVICE, Tier.DISK, Tier.DISK]
    assert manager._ledger.spare(Tier.DISK) == []
    manager.release("g1")
    audit(manager, folder)
    manager.close()


def test_who_cannot_leave_is_passed_over(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manager = passing(folder, host=0)
    for seed in (1, 2):
        manager.register(f"g{seed}", tensors(seed, num_large=1))
    manager.register("g3", tensors(3, num_large=1))
    write, refused = manager._stores.file_store(Tier.DISK).write, set(manager.group("g1").contents)

    def refusing(key: str, buffer: object) -> str:
        if key in refused:
            raise OSError(28, "No space left on device")
        return write(key, buffer)  # type: ignore[arg-type]

    monkeypatch.setattr(manager._stores.file_store(Tier.DISK), "write", refusing)
    assert same(manager.acquire("g3"), tensors(3, num_large=1))
    assert (manager.tier("g1"), manager.tier("g2")) == (Tier.DEVICE, Tier.DISK)
    manager.acquire("g1")
    with pytest.raises((CapacityError, StateError)):
        manager.acquire("g2")
    manager.release("g1")
    manager.release("g3")
    manager.flush()
    audit(manager, folder)
    manager.close()
