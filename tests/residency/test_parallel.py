"""Contents that several threads write: as one would, and as carefully."""

import errno
import itertools
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from plait.residency import content_file, copier, disk_store
from plait.residency.manager import StateManager
from plait.residency.parallel import for_each
from plait.residency.tier import TIERS, Tier
from plait.types.errors import CapacityError, PlaitError
from tests.residency.audit import audit, opened, same, tensors

NUM_LARGE = 12


def test_calls_run_at_once_and_the_first_error_is_raised_when_all_have_ended() -> None:
    together = threading.Barrier(3)
    for_each(lambda _: together.wait(120), range(3), 3)
    done: list[int] = []

    def call(number: int) -> None:
        if number == 1:
            raise ValueError(f"{number}")
        done.append(number)

    with pytest.raises(ValueError, match="1"):
        for_each(call, range(100), 2)
    assert len(done) < 100
    done.clear()
    with pytest.raises(ValueError, match="1"):
        for_each(call, range(100), 1)
    assert done == [0]


@pytest.fixture
def many(folder: Path, monkeypatch: pytest.MonkeyPatch) -> StateManager:
    """Everything counts as much, and there are threads."""
    monkeypatch.setattr(copier, "MANY_BYTES", 0)
    monkeypatch.setattr(disk_store, "MANY_FILES", 2)
    monkeypatch.setattr(copier.torch, "get_num_threads", lambda: 4)
    manager = opened(folder, dict.fromkeys(TIERS))
    manager.register("a", tensors(1, NUM_LARGE))
    manager.acquire("a", writable=True)
    manager.release("a")
    return manager


def leave(manager: StateManager, tier: Tier) -> None:
    with manager._mover.moving("a"):
        manager._mover.leave("a", tier)


@pytest.mark.parametrize("tier", TIERS[1:])
def test_what_several_threads_wrote_is_what_was_there(many: StateManager, folder: Path, tier: Tier) -> None:
    leave(many, tier)
    assert many.tier("a") is tier
    assert same(many.acquire("a"), tensors(1, NUM_LARGE))
    many.release("a")
    audit(many, folder)
    many.close()


@pytest.mark.parametrize("tier", TIERS[1:])
@pytest.mark.parametrize("number", [1, 4, NUM_LARGE])
def test_when_one_of_them_fails_all_is_as_it_was(
    many: StateManager, folder: Path, monkeypatch: pytest.MonkeyPatch, tier: Tier, number: int
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(content_file, "_write_all", failing(number, content_file._write_all, errno.ENOSPC))
        with pytest.raises(CapacityError, match=f"cannot move group 'a' to {tier.value}: {os.strerror(errno.ENOSPC)}"):
            leave(many, tier)
    audit(many, folder)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", failing(number, os.fsync, errno.EIO))
        if tier is Tier.DISK:
            with pytest.raises(PlaitError, match=os.strerror(errno.EIO)):
                leave(many, tier)
    audit(many, folder)
    leave(many, tier)
    assert same(many.acquire("a"), tensors(1, NUM_LARGE))
    many.close()


def failing(number: int, call: Callable[..., object], code: int) -> Callable[..., object]:
    numbers = itertools.count(1)

    def wrapper(*arguments: object) -> object:
        if next(numbers) == number:
            raise OSError(code, os.strerror(code))
        return call(*arguments)

    return wrapper
