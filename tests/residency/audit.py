"""Groups to try a state manager with, and whether it has what it says it has."""

from collections.abc import Collection, Mapping
from pathlib import Path

import torch
from torch import Tensor

from plait.residency.manager import StateManager
from plait.residency.tier import TIERS, Tier

LARGE = (16, 64)
LARGE_BYTES = 16 * 64 * 4


def tensors(seed: int, num_large: int = 2) -> dict[str, Tensor]:
    """Large and small ones; those of one seed are equal."""
    generator = torch.Generator().manual_seed(seed)
    large = {f"large{number}": torch.randn(LARGE, generator=generator) for number in range(num_large)}
    small = {"norm": torch.randn(7, generator=generator).bfloat16(), "step": torch.tensor(seed), "empty": torch.zeros(0, 3)}
    return large | small


def same(found: dict[str, Tensor], expected: dict[str, Tensor]) -> bool:
    return found.keys() == expected.keys() and all(
        torch.equal(found[name], expected[name]) and found[name].dtype == expected[name].dtype for name in expected
    )


def opened(folder: Path, budgets: Mapping[Tier, int | None]) -> StateManager:
    """Its calls to the system come in an order that depends on no threads, if the caller waits for what it starts."""
    return StateManager(budgets, "cpu", folder / "host", folder / "disk")


def audit(manager: StateManager, folder: Path, held: Collection[str] = ()) -> None:
    """With nothing under way: every byte is counted, nothing is reserved, half written, or of no group; pinned is what is held."""
    stores, ledger = manager._stores, manager._ledger
    assert stores.host is not None
    stores.discard([])  # what could not be removed before is removed now
    found = {
        Tier.DEVICE: {key: buffer.numel() for key, buffer in stores.device._buffers.items()},
        Tier.HOST: _files(stores.host._own),
        Tier.DISK: _files(folder / "disk" / "contents"),
    }
    spare_bytes = dict.fromkeys(TIERS, 0)
    for tier in TIERS[1:]:
        spares = stores.file_store(tier).spares
        spare_bytes[tier] = sum(found[tier].pop(spare.path.name) for spare in spares.items)
        assert spare_bytes[tier] == spares.num_bytes
    spare_bytes[Tier.DEVICE] = sum(buffer.numel() for buffer in stores.device.spares.items)
    for tier in TIERS:
        assert ledger._present[tier] == found[tier], tier
        assert ledger.used_bytes(tier) == sum(found[tier].values())
        budget = ledger.budgets[tier]
        assert budget is None or ledger.used_bytes(tier) + spare_bytes[tier] <= budget
        assert (+ledger._pins[tier]).keys() == (set(held) if tier is Tier.DEVICE else set())
        for key in found[tier]:
            assert not ledger.is_garbage(tier, key), f"{key} is of no group"
    assert not ledger.num_reservations
    assert not manager._mover._moving


def _files(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in folder.iterdir()}
