"""Simulated residency against the service's own state manager with tensors: who leaves the device, and what is to be written."""

import tempfile
from collections.abc import Sequence
from itertools import count
from pathlib import Path

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from plait.residency.manager import StateManager
from plait.residency.rates import TransferRates
from plait.residency.tier import Tier
from plait.simulation.group_residency import GroupResidency

MEMORY = Path("/dev/shm")
UNIT = 4096
"""Bytes."""
Uses = list[tuple[str, bool]]
"""Deployments in the order in which their calls run, and whether those change their state."""


def real_manager(folder: Path, budget_bytes: int) -> StateManager:
    ticks = count(1)
    budgets = {Tier.DEVICE: budget_bytes, Tier.HOST: None, Tier.DISK: None}
    return StateManager(budgets, "cpu", folder / "host", folder / "disk", clock=lambda: float(next(ticks)))


def use(manager: StateManager, name: str, changes: bool) -> None:
    tensors = manager.acquire(name, writable=changes)
    if changes:
        tensors["w"].add_(1.0)
    manager.release(name)


def is_last(manager: StateManager, name: str) -> bool:
    """No tier below has what is on the device."""
    return all(manager._ledger.is_last(Tier.DEVICE, key) for key in manager._ledger.contents(name))


def compared(folder: Path, sizes: Sequence[int], budget: int, uses: Uses) -> None:
    real, simulated = real_manager(folder, budget * UNIT), GroupResidency(budget * UNIT, TransferRates())
    names = [chr(ord("a") + number) for number in range(len(sizes))]
    try:
        for number, (name, size) in enumerate(zip(names, sizes, strict=True)):
            real.register(name, {"w": torch.full((size * UNIT // 4,), 1000.0 * number)})
            real.offload(name)
            real.flush()
            simulated.join(name, sum(real._ledger.contents(name).values()), Tier.HOST)
        for name, changes in uses:
            use(real, name, changes)
            simulated.enter(name, 0.0)
            if changes:
                simulated.changed(name)
            resident = [other for other in names if real.tier(other) is Tier.DEVICE]
            assert sorted(simulated.resident) == resident
            for other in resident:
                assert simulated.ledger.is_last(Tier.DEVICE, other) == is_last(real, other)
    finally:
        real.close()


@settings(deadline=None, max_examples=8)
@given(
    st.lists(st.integers(1, 4), min_size=4, max_size=4), st.integers(4, 9),
    st.lists(st.tuples(st.sampled_from("abcd"), st.booleans()), min_size=4, max_size=14),
)  # fmt: skip
def test_who_leaves_the_device_is_who_the_state_manager_moves(sizes: list[int], budget: int, uses: Uses) -> None:
    with tempfile.TemporaryDirectory(prefix="plait-test-", dir=MEMORY if MEMORY.is_dir() else None) as folder:
        compared(Path(folder), sizes, budget, uses)
