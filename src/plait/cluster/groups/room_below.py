"""Whether everything off the device finds a place, whoever has the device. Pure."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Occupant(NamedTuple):
    """One deployment, in bytes."""

    on_device: int
    """While it is there, all that it may come to need."""
    parked: int
    """Of its own, most that it leaves behind when it is not."""
    embedding: int
    """Of its base, that needs no other place while it is there."""


def homeless_bytes(occupants: Sequence[Occupant], bases: Mapping[str, int], device_bytes: int, below_bytes: int | None) -> int:
    """How many bytes find no place at the worst; 0 if all fit on the device together, or there is no bound below.

    `bases`: bytes of each base's weights, which are kept once however many deployments have it.
    """
    if below_bytes is None or sum(occupant.on_device for occupant in occupants) <= device_bytes:
        return 0
    total_bytes = sum(bases.values()) + sum(occupant.parked for occupant in occupants)
    placed_bytes = min(o.parked + o.embedding + max(0, device_bytes - o.on_device) for o in occupants)
    return max(0, total_bytes - placed_bytes - below_bytes)
