"""How long it takes until another model is on a device that holds one.

Warm: it comes from the host's memory; cold: from the disk, of which the system's cache holds nothing. Frozen: weights only read,
whose copy below is still good when they leave; trained: written to since they came, so that they are copied when they leave.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from benchmarks.common import headline, timed
from benchmarks.state_model import num_bytes, other_model
from benchmarks.state_moves import clear_cache, manager_in
from plait.residency.manager import StateManager
from plait.residency.tier import Tier

GOAL = 0.8
NAMES = ("one", "other")


def switches(weights: Mapping[str, Tensor], folder: Path, num_rounds: int) -> list[dict[str, Any]]:
    """A row for each kind of switch; the fastest round counts."""
    total_bytes = num_bytes([dict(weights)])
    rows = []
    for source in (Tier.HOST, Tier.DISK):
        for is_trained in (False, True):
            budget = int(total_bytes * 1.1)
            # Without room in the host's memory everything that leaves goes to the disk.
            budgets = {Tier.DEVICE: budget, Tier.HOST: 2 * budget if source is Tier.HOST else 0, Tier.DISK: None}
            with manager_in(folder, budgets) as manager:
                manager.register(NAMES[0], {name: tensor.clone() for name, tensor in weights.items()})
                manager.register(NAMES[1], other_model(dict(weights)))
                times = [_switch_s(manager, NAMES[turn % 2], is_trained, folder) for turn in range(2 * num_rounds + 2)][2:]
            row = {"part": "switch", "from": source.value, "weights": "trained" if is_trained else "frozen", "bytes": total_bytes}
            rows.append(row | {"switch_s": min(times), "all_switch_s": times})
    return rows


def _switch_s(manager: StateManager, name: str, is_trained: bool, folder: Path) -> float:
    clear_cache(list((folder / "disk" / "contents").iterdir()))
    switch_s = timed(lambda: manager.acquire(name)).wall_s
    if is_trained:
        manager.acquire(name, writable=True)
        manager.release(name)
    manager.release(name)
    return switch_s


def switch_headlines(rows: Sequence[Mapping[str, Any]], moves: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Against plain moves of the same bytes: in, and for trained weights out before."""
    plain = {row["route"]: row["plain_gb_per_s"] * 1e9 for row in moves}
    found = {}
    for row in rows:
        place = row["from"]
        plain_s = row["bytes"] / plain[f"load from {place}"]
        plain_s += row["bytes"] / plain[f"offload to {place}"] if row["weights"] == "trained" else 0
        temperature = "warm" if place == Tier.HOST else "cold"
        note = f"{row['switch_s']:.3f} s for {row['bytes'] / 1e6:.0f} MB; plain moves take {plain_s:.3f} s"
        found[f"switch_{temperature}_{row['weights']}"] = headline(plain_s / row["switch_s"], GOAL, "x", note)
    return found
