"""When any step fails, the caller hears of it, all is where it was, and nothing leaks."""

import errno
import os
import resource
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from plait.residency import disk_store
from plait.residency.manager import StateManager
from plait.residency.tier import Tier
from plait.state import writer_lock
from plait.types.errors import CapacityError, PlaitError, StateError
from tests.residency.audit import LARGE_BYTES, audit, opened, same, tensors
from tests.residency.faults import Turn, fail, injected

ROOM = 3 * LARGE_BYTES
"""For one group, and a half."""


def manager_of(folder: Path, device: int | None = ROOM, host: int | None = ROOM, disk: int | None = None) -> StateManager:
    budgets = {Tier.DEVICE: device, Tier.HOST: host, Tier.DISK: disk}
    return opened(folder, budgets)


def attempt(work: Callable[[], object], failures: list[PlaitError]) -> bool:
    try:
        work()
    except PlaitError as error:
        failures.append(error)
        return False
    return True


def exercise(manager: StateManager, contents: dict[str, int], failures: list[PlaitError]) -> None:
    """`contents`: group -> the seed of what it should hold; kept up to date with what has worked."""
    for seed in range(3):
        if attempt(partial(manager.register, f"g{seed}", tensors(seed)), failures):
            contents[f"g{seed}"] = seed
    for name in list(contents):
        if attempt(partial(manager.acquire, name, writable=True), failures):
            manager.release(name)
        if attempt(partial(manager.update, name, tensors(contents[name] + 10)), failures):
            contents[name] += 10
        with manager._mover.moving(name):
            attempt(partial(manager._mover.leave, name, Tier.DISK), failures)
    for name in list(contents)[:1]:
        if attempt(partial(manager.drop, name), failures):
            del contents[name]


def check(manager: StateManager, contents: dict[str, int], folder: Path) -> None:
    audit(manager, folder)
    assert manager.names() == sorted(contents)
    for name, seed in contents.items():
        assert same(manager.acquire(name), tensors(seed)), name
        manager.release(name)
    audit(manager, folder)


def test_every_step_failing_in_turn_leaves_all_as_it_was(folder: Path) -> None:
    happened = set()
    for number in range(1, 1000):
        own, contents, failures = folder / str(number), dict[str, int](), list[PlaitError]()
        manager, turn = manager_of(own), Turn(number, fail)
        with injected(turn):
            exercise(manager, contents, failures)
        check(manager, contents, own)
        manager.close()
        if not turn.happened:
            break
        happened.add(turn.happened)
        assert len(failures) <= 2
    assert happened == {"link", "rename", "replace", "fsync", "readv", "open", "write", "empty"}
    assert number > 50
    assert not failures, "the last time nothing failed"


def test_a_full_tier_passes_on_to_the_next(folder: Path) -> None:
    manager = manager_of(folder, host=LARGE_BYTES)
    manager.register("a", tensors(1))
    manager.register("b", tensors(2))
    assert (manager.tier("a"), manager.tier("b")) == (Tier.DEVICE, Tier.DISK)
    assert same(manager.acquire("b"), tensors(2))
    assert manager.tier("a") is Tier.DISK
    manager.release("b")
    check(manager, {"a": 1, "b": 2}, folder)
    manager.close()


def test_no_room_anywhere_is_said_and_changes_nothing(folder: Path) -> None:
    manager = manager_of(folder, disk=ROOM)
    for seed in range(3):
        manager.register(f"g{seed}", tensors(seed))
    with pytest.raises(CapacityError, match=r"do not fit into disk: \d+ of its \d+ bytes are used"):
        manager.register("g3", tensors(3))
    tiers = [manager.tier(f"g{seed}") for seed in range(3)]
    assert tiers == [Tier.DEVICE, Tier.DISK, Tier.HOST]
    with pytest.raises(CapacityError, match="disk"):
        manager.acquire("g2")
    assert [manager.tier(f"g{seed}") for seed in range(3)] == tiers
    audit(manager, folder)
    manager.close()


def damage_of(kind: str) -> Callable[[Path], None]:
    def flip(path: Path) -> None:
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)

    def truncate(path: Path) -> None:
        os.truncate(path, path.stat().st_size - 1)

    damages: dict[str, Callable[[Path], None]] = {"missing": Path.unlink, "truncated": truncate, "flipped": flip}
    return damages[kind]


@pytest.mark.parametrize("kind", ["missing", "truncated", "flipped"])
def test_a_damaged_file_is_named_and_others_are_not_concerned(kind: str, folder: Path) -> None:
    manager = manager_of(folder)
    for name, seed in (("a", 1), ("b", 2)):
        manager.register(name, tensors(seed))
        manager.offload(name, Tier.DISK)
        manager.flush()
    victim = folder / "disk" / "contents" / sorted(manager.group("a").contents)[0]
    damage_of(kind)(victim)
    for _ in range(2):
        with pytest.raises(StateError, match=victim.name):
            manager.acquire("a")
    assert manager.used_bytes()[Tier.DEVICE] == 0
    assert same(manager.acquire("b"), tensors(2))
    manager.release("b")
    manager.drop("a")
    audit(manager, folder)
    manager.close()


def test_a_damaged_copy_in_memory_is_given_up_for_that_on_disk(folder: Path) -> None:
    manager = manager_of(folder)
    manager.register("a", tensors(1))
    manager.offload("a", Tier.DISK)
    manager.flush()
    with manager._mover.moving("a"):
        manager._mover.lift("a")
    assert manager.tier("a") is Tier.HOST
    assert manager._stores.host is not None
    damaged = manager._stores.host._own / sorted(manager.group("a").contents)[0]
    os.truncate(damaged, 3)
    assert same(manager.acquire("a"), tensors(1))
    manager.release("a")
    audit(manager, folder)
    manager.close()


def test_a_damaged_manifest_is_set_aside(folder: Path) -> None:
    manager = manager_of(folder)
    for name, seed in (("a", 1), ("b", 2)):
        manager.register(name, tensors(seed))
        manager.offload(name, Tier.DISK)
        manager.flush()
    manager.close()
    first = sorted((folder / "disk" / "groups").glob("*.json"))[0]
    first.write_bytes(first.read_bytes()[:-9])
    again = manager_of(folder)
    assert len(again.names()) == 1
    check(again, {name: {"a": 1, "b": 2}[name] for name in again.names()}, folder)
    again.close()


def test_a_disk_that_takes_no_large_files(folder: Path) -> None:
    """A limit of the system: the write itself fails, in a process of its own."""
    child = os.fork()
    if child == 0:
        os._exit(_limited(folder))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def _limited(folder: Path) -> int:
    manager = manager_of(folder)
    manager.register("a", tensors(1))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (LARGE_BYTES - 1, resource.RLIM_INFINITY))
    try:
        with manager._mover.moving("a"):
            manager._mover.leave("a", Tier.HOST)
    except StateError as error:
        if os.strerror(errno.EFBIG) in str(error):
            check(manager, {"a": 1}, folder)
            return 0
    return 1


def test_one_process_holds_a_disk_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manager = manager_of(folder)
    with monkeypatch.context() as patch:
        patch.setattr(disk_store, "ORPHAN_GRACE_S", 0.0)
        with pytest.raises(StateError, match="another process has been writing"):
            manager_of(folder)
    waits: list[float] = []

    def end_it(seconds: float) -> None:
        waits.append(seconds)
        manager.close()

    monkeypatch.setattr(writer_lock.time, "sleep", end_it)
    manager_of(folder).close()
    assert waits, "one that is about to end is waited for"
