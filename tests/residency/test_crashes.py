"""A process may be killed at any moment: the disk tier is consistent for the next, and nothing is left of the process."""

import os
import signal
from pathlib import Path

from plait.residency.manager import StateManager
from plait.residency.tier import TIERS, Tier
from tests.residency.audit import audit, opened, same, tensors
from tests.residency.faults import Turn, injected, kill

STRIDE = 4
"""Every so many of the calls to the system is one to be killed at."""


def manager_of(folder: Path) -> StateManager:
    return opened(folder, dict.fromkeys(TIERS))


def store(manager: StateManager, name: str, seed: int) -> None:
    if name in manager:
        manager.acquire(name, writable=True)
        manager.release(name)
        manager.update(name, tensors(seed), version=seed)
    else:
        manager.register(name, tensors(seed), version=seed)
    for tier in (Tier.HOST, Tier.DISK):
        with manager._mover.moving(name):
            manager._mover.leave(name, tier)


def victim(folder: Path, marks: int, number: int) -> None:
    """Store two groups, then later versions of the first, of which one is written over files of its first; tell after each; drop
    the second. Never returns."""
    manager = manager_of(folder)
    with injected(Turn(number, kill)):
        for name, seed in (("a", 1), ("b", 2), ("a", 3), ("a", 5)):
            store(manager, name, seed)
            os.write(marks, b".")
        manager.drop("b")
        os.write(marks, b".")
    os._exit(0)


def run_victim(folder: Path, number: int) -> tuple[int, bool]:
    """How much it said it had done, and whether it was killed."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reading)
            victim(folder, writing, number)
        finally:
            os._exit(1)
    os.close(writing)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in (0, -signal.SIGKILL)
    with os.fdopen(reading, "rb") as marks:
        return len(marks.read()), status != 0


def test_a_kill_at_any_call_leaves_a_disk_tier_that_the_next_manager_opens(folder: Path) -> None:
    number, was_killed = 1, True
    while was_killed:
        own = folder / str(number)
        num_done, was_killed = run_victim(own, number)
        manager = manager_of(own)
        versions = {name: manager.group(name).version for name in manager.names()}
        assert versions.get("a", 0) in ([0, 1], [1], [1, 3], [3, 5], [5], [5])[num_done], (
            "the last that was stored, or the one under way"
        )
        assert versions.get("b", 0) in ([0], [0, 2], [2], [2], [0, 2], [0])[num_done]
        for name, seed in versions.items():
            assert same(manager.acquire(name), tensors(seed))
            manager.release(name)
        audit(manager, own)
        own_folder = manager._stores.host._own if manager._stores.host else None
        assert list((own / "host" / "users").iterdir()) == [own_folder], "what the killed one had in memory is gone"
        assert not list((own / "host" / "pool").iterdir())
        manager.close()
        number += STRIDE
    assert number > 30 * STRIDE
