"""Whether everything off the device finds a place, whoever has the device. Pure."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Occupant(NamedTuple):
    """One deployment, in bytes."""

    on_device: int
    """While it is there, all that it may come to need."""
    parked: int
    """Of its own, most that it leaves behind when it is not."""
    base: str
    embedding: int
    """Of its base, that needs no other place while it is there."""


def homeless_bytes(occupants: Sequence[Occupant], bases: Mapping[str, int], device_bytes: int, below_bytes: int | None) -> int:
    """How many bytes find no place at the worst, when one deployment has the device; if all fit together they have it together.

    `bases`: bytes of each base's weights, which are kept once however many deployments have it, besides how they lay them out.
    """
    if below_bytes is None:
        return 0
    total_bytes = sum(bases.values()) + sum(occupant.parked for occupant in occupants)
    is_roomy = sum(occupant.on_device for occupant in occupants) <= device_bytes
    together = [occupants] if is_roomy else [[occupant] for occupant in occupants]
    return max(0, total_bytes - min(_placed_bytes(here, device_bytes) for here in together) - below_bytes)


def _placed_bytes(here: Sequence[Occupant], device_bytes: int) -> int:
    """Of what needs a place, when these have the device."""
    embeddings = {occupant.base: occupant.embedding for occupant in here}
    spare_bytes = max(0, device_bytes - sum(occupant.on_device for occupant in here))
    return sum(occupant.parked for occupant in here) + sum(embeddings.values()) + spare_bytes
