"""What sharing equal contents saves: several deployments on one base, each with versions of its adapter, in every tier."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from benchmarks.common import headline
from benchmarks.state_model import num_bytes, trained_adapter
from benchmarks.state_moves import manager_in
from plait.residency.tier import TIERS, Tier
from plait.types.model import ModelConfig

NUM_DEPLOYMENTS = 4
NUM_VERSIONS = 3
GOAL = 0.95


def sharing(config: ModelConfig, weights: Mapping[str, Tensor], folder: Path) -> list[dict[str, Any]]:
    """A row per tier: bytes of all groups as if each were alone, bytes that differ, and bytes that are stored."""
    adapters = [trained_adapter(config, seed) for seed in range(NUM_DEPLOYMENTS * NUM_VERSIONS)]
    logical = num_bytes([dict(weights)]) * NUM_DEPLOYMENTS + num_bytes(adapters)
    distinct = num_bytes([dict(weights)]) + num_bytes(adapters)
    rows = []
    with manager_in(folder) as manager:
        names = []
        for number in range(NUM_DEPLOYMENTS):
            names.append(f"base of {number}")
            manager.register(names[-1], {name: tensor.clone() for name, tensor in weights.items()})
        for number, adapter in enumerate(adapters):
            names.append(f"adapter {number}")
            manager.register(names[-1], adapter)
        for tier in TIERS:
            if tier is not Tier.DEVICE:
                for name in names:
                    manager.offload(name, tier)
                manager.flush()
            stored = manager.used_bytes()[tier]
            rows.append(
                {
                    "part": "sharing",
                    "tier": tier.value,
                    "logical_bytes": logical,
                    "distinct_bytes": distinct,
                    "stored_bytes": stored,
                }
            )
    return rows


def sharing_headlines(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    worst = max(rows, key=lambda row: row["stored_bytes"])
    saved = 1 - worst["stored_bytes"] / worst["logical_bytes"]
    note = f"{NUM_DEPLOYMENTS} deployments on one base, {NUM_VERSIONS} adapters each: {saved:.0%} of the bytes saved in each tier"
    return {"sharing": headline(worst["distinct_bytes"] / worst["stored_bytes"], GOAL, "of the bytes stored differ", note)}
