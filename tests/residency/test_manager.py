"""Groups of tensors come to the device when they are acquired, and are the same bits wherever they have been."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from plait.residency.manager import StateManager
from plait.residency.tier import Tier
from plait.types.errors import CapacityError, StateError
from tests.residency.audit import LARGE, LARGE_BYTES, audit, same, tensors

Make = Callable[..., StateManager]


@pytest.fixture
def make(folder: Path) -> Iterator[Make]:
    made: list[StateManager] = []

    def _make(device: int | None = None, host: int | None = None, disk: int | None = None) -> StateManager:
        budgets = {Tier.DEVICE: device, Tier.HOST: host, Tier.DISK: disk}
        made.append(StateManager(budgets, "cpu", folder / "host", folder / "disk"))
        return made[-1]

    yield _make
    for manager in made:
        manager.close()


def test_a_group_is_the_same_bits_in_every_tier(make: Make) -> None:
    manager = make()
    manager.register("a", tensors(1))
    for tier in (Tier.DEVICE, Tier.HOST, Tier.DISK):
        if tier is not Tier.DEVICE:
            manager.offload("a", tier)
            manager.flush()
        assert manager.tier("a") is tier
        assert same(manager.acquire("a"), tensors(1))
        manager.release("a")


def test_groups_beyond_the_device_move_down_and_come_back(make: Make, folder: Path) -> None:
    manager = make(device=5 * LARGE_BYTES, host=5 * LARGE_BYTES)
    for seed in range(6):
        manager.register(f"g{seed}", tensors(seed))
    assert {manager.tier(f"g{seed}") for seed in range(6)} == set(Tier)
    for seed in [3, 1, 5, 0, 2, 4, 0]:
        assert same(manager.acquire(f"g{seed}"), tensors(seed))
        assert manager.tier(f"g{seed}") is Tier.DEVICE
        manager.release(f"g{seed}")
        audit(manager, folder)


def test_equal_contents_take_bytes_once(make: Make) -> None:
    manager = make()
    manager.register("a", tensors(1))
    alone = manager.used_bytes()[Tier.DEVICE]
    manager.register("b", tensors(1))
    assert manager.used_bytes()[Tier.DEVICE] == alone
    manager.drop("a")
    assert same(manager.acquire("b"), tensors(1))


def test_what_is_written_into_one_group_is_in_no_other(make: Make) -> None:
    manager = make()
    for name in ("a", "b"):
        manager.register(name, tensors(1))
    manager.acquire("a", writable=True)["large0"].add_(1)
    manager.acquire("a")["norm"].add_(1)
    assert same(manager.acquire("b"), tensors(1))
    manager.release("a")
    manager.release("a")
    manager.offload("a", Tier.DISK)
    manager.flush()
    changed = tensors(1)
    changed["large0"] += 1
    changed["norm"] += 1
    assert same(manager.acquire("a"), changed)


def test_equal_tensors_of_a_group_are_apart_once_they_are_writable(make: Make) -> None:
    manager = make()
    manager.register("moments", {name: torch.zeros(LARGE) for name in ("first", "second")})
    assert manager.used_bytes()[Tier.DEVICE] == LARGE_BYTES
    found = manager.acquire("moments", writable=True)
    found["first"].add_(1)
    assert not found["second"].any()
    assert manager.used_bytes()[Tier.DEVICE] == 2 * LARGE_BYTES


def test_what_others_have_below_is_written_into_without_room_for_a_copy(make: Make, folder: Path) -> None:
    """As two policies that start from the same weights: the device has room for one of them."""
    manager = make(device=3 * LARGE_BYTES - 1)
    for name in ("a", "b"):
        manager.register(name, tensors(1))
        manager.offload(name, Tier.HOST)
        manager.flush()
    manager.acquire("a", writable=True)["large0"].add_(1)
    manager.release("a")
    audit(manager, folder)
    assert same(manager.acquire("b"), tensors(1))
    manager.release("b")
    audit(manager, folder)
    assert same(manager.acquire("a"), tensors(1) | {"large0": tensors(1)["large0"] + 1})


def test_updates_replace_tensors(make: Make) -> None:
    manager = make()
    manager.register("a", tensors(1))
    manager.update("a", {"large0": tensors(2)["large0"], "norm": tensors(2)["norm"], "more": torch.ones(3)})
    expected = tensors(1) | {"large0": tensors(2)["large0"], "norm": tensors(2)["norm"], "more": torch.ones(3)}
    assert manager.group("a").version == 1
    manager.offload("a", Tier.DISK)
    manager.flush()
    assert same(manager.acquire("a"), expected)


def test_pinned_groups_stay(make: Make) -> None:
    manager = make(device=3 * LARGE_BYTES)
    manager.register("a", tensors(1))
    manager.register("b", tensors(2))
    manager.acquire("a")
    with pytest.raises(CapacityError, match="device"):
        manager.acquire("b")
    assert (manager.tier("a"), manager.tier("b")) == (Tier.DEVICE, Tier.HOST)
    manager.release("a")
    manager.acquire("b")
    with pytest.raises(StateError, match="not in use"):
        manager.release("a")


def test_setup_is_free_on_the_device_and_dearer_from_the_disk(make: Make) -> None:
    manager = make()
    manager.register("a", tensors(1))
    assert manager.setup_s("a") == 0
    manager.offload("a", Tier.DISK)
    manager.flush()
    assert manager.setup_s("a") > 0
    manager.prefetch("a")
    manager.flush()
    assert manager.setup_s("a") == 0


def test_a_new_manager_finds_what_is_on_disk(folder: Path) -> None:
    budgets = dict.fromkeys(Tier)
    first = StateManager(budgets, "cpu", folder / "host", folder / "disk")
    first.register("a", tensors(1), version=7)
    first.register("b", tensors(2))
    first.offload("a", Tier.DISK)
    first.flush()
    first.close()
    second = StateManager(budgets, "cpu", folder / "host", folder / "disk")
    assert second.names() == ["a"]
    assert second.group("a").version == 7
    assert same(second.acquire("a"), tensors(1))
    second.close()


def test_room_that_somebody_keeps_is_not_waited_for(make: Make, folder: Path) -> None:
    manager = make(device=3 * LARGE_BYTES)
    manager.register("a", tensors(1))
    manager.offload("a")
    manager.flush()
    room = manager._mover.reserve(Tier.DEVICE, {"activations": 2 * LARGE_BYTES})
    with pytest.raises(CapacityError, match="do not fit"):
        manager.acquire("a")
    manager._mover.roll_back(room)
    assert same(manager.acquire("a"), tensors(1))
    manager.release("a")
    audit(manager, folder)
