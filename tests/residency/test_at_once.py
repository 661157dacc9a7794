"""Several threads use one manager: each waits for its own group, and the budgets hold."""

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from plait.residency.disk_store import DiskStore
from plait.residency.manager import StateManager
from plait.residency.tier import Tier
from plait.types.errors import CapacityError
from tests.residency.audit import LARGE_BYTES, audit, same, tensors

NUM_GROUPS = 6
NUM_THREADS = 3


def test_threads_find_their_own_bits_whatever_the_others_do(folder: Path) -> None:
    budgets = {Tier.DEVICE: 9 * LARGE_BYTES, Tier.HOST: 5 * LARGE_BYTES, Tier.DISK: None}
    manager = StateManager(budgets, "cpu", folder / "host", folder / "disk")
    for number in range(NUM_GROUPS):
        manager.register(f"g{number}", tensors(number % 4))

    def use(thread: int) -> None:
        """Groups of its own, which it changes, and others' that it moves."""
        draw = random.Random(thread)
        steps = dict.fromkeys(range(thread, NUM_GROUPS, NUM_THREADS), 0)
        for _ in range(40):
            number = draw.choice(list(steps))
            draw.choice([manager.prefetch, manager.offload])(f"g{draw.randrange(NUM_GROUPS)}")
            found = acquired(manager, f"g{number}")
            expected = tensors(number % 4)
            expected["large0"] *= 2.0 ** steps[number]
            assert same(found, expected)
            found["large0"].mul_(2)
            steps[number] += 1
            manager.release(f"g{number}")

    with ThreadPoolExecutor(NUM_THREADS) as pool:
        list(pool.map(use, range(NUM_THREADS)))
    manager.flush()
    audit(manager, folder)
    manager.close()


def acquired(manager: StateManager, name: str) -> dict[str, Tensor]:
    """Three groups fit, and as many threads use one each: what moves ahead of use may be in the way, and not for long."""
    deadline_s = time.monotonic() + 60
    while True:
        try:
            return manager.acquire(name, writable=True)
        except CapacityError:
            assert time.monotonic() < deadline_s
            time.sleep(0.001)


def test_a_group_that_is_here_is_had_while_another_is_written_to_disk(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manager = StateManager(dict.fromkeys(Tier), "cpu", folder / "host", folder / "disk")
    for number in range(2):
        manager.register(f"g{number}", tensors(number))
    is_writing, may_go_on = threading.Event(), threading.Event()
    sync = DiskStore.sync

    def slow_sync(self: DiskStore, keys: Any) -> None:
        is_writing.set()
        assert may_go_on.wait(120)
        sync(self, keys)

    monkeypatch.setattr(DiskStore, "sync", slow_sync)
    manager.offload("g0", Tier.DISK)
    assert is_writing.wait(120)
    assert same(manager.acquire("g1"), tensors(1)), "not waited for"
    waiting = threading.Thread(target=manager.acquire, args=("g0",))
    waiting.start()
    time.sleep(0.02)
    assert waiting.is_alive(), "its own move is waited for"
    may_go_on.set()
    waiting.join(120)
    assert manager.tier("g0") is Tier.DEVICE
    manager.close()


def test_prefetch_moves_nothing_that_is_needed_before(folder: Path) -> None:
    budgets = {Tier.DEVICE: 5 * LARGE_BYTES, Tier.HOST: None, Tier.DISK: None}
    manager = StateManager(budgets, "cpu", folder / "host", folder / "disk")
    for number in range(3):
        manager.register(f"g{number}", tensors(number))
    manager.offload("g2", Tier.DISK)
    manager.hint(["g0", "g1", "g2"])
    manager.prefetch("g2")
    manager.flush()
    assert [manager.tier(f"g{number}") for number in range(3)] == [Tier.DEVICE, Tier.DEVICE, Tier.HOST], "as near as it may come"
    manager.hint(["g1", "g2"])
    manager.prefetch("g2")
    manager.flush()
    assert [manager.tier(f"g{number}") for number in range(3)] == [Tier.HOST, Tier.DEVICE, Tier.DEVICE]
    assert torch.equal(manager.acquire("g2")["large1"], tensors(2)["large1"])
    manager.close()
