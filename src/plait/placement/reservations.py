"""Who holds what: devices x window of time x memory, all of a request or nothing.

- At any time, the shares on a device sum to at most 1, and the bytes of each tier on a node to at most what it has.
- `reserve` takes every claim of a request or leaves everything as it was; `replace` likewise, keeping the old claims if it fails.
- The view is kept true: a device is free if nobody claims it at any time; free bytes are those that nobody ever claims.
"""

from collections.abc import Sequence

import msgspec

from plait.placement.resource_view import NOTHING, Bytes, ResourceView, Slice
from plait.types.errors import StateError

TOLERANCE = 1e-9


class Claim(msgspec.Struct, frozen=True):
    """`share`: of the devices' time, within the window; a periodic job's load. `each`: memory for every device."""

    slices: tuple[Slice, ...]
    share: float = 1.0
    each: Bytes = NOTHING
    start_s: float = 0.0
    end_s: float = float("inf")


class _Entry(msgspec.Struct, frozen=True):
    start_s: float
    end_s: float
    amount: float


Key = tuple[int, int, int]
"""Reservation, claim, slice."""


class Reservations:
    def __init__(self, view: ResourceView) -> None:
        self._view = view
        self._claims: dict[int, tuple[Claim, ...]] = {}
        self._shares: dict[tuple[str, int], dict[Key, _Entry]] = {}
        self._bytes: dict[tuple[str, str], dict[Key, _Entry]] = {}
        self._next_id = 0

    def reserve(self, claims: Sequence[Claim]) -> int | None:
        """The reservation's id; None if any claim does not fit, and then nothing has changed."""
        self._check(claims)
        self._next_id += 1
        return self._next_id if self._reserve(self._next_id, claims) else None

    def replace(self, reservation: int, claims: Sequence[Claim]) -> bool:
        """Other claims for the same reservation; whether they fit, else the old ones stay."""
        self._check(claims)
        before = self._claims[reservation]
        self.release(reservation)
        if self._reserve(reservation, claims):
            return True
        self._take(reservation, before)
        return False

    def release(self, reservation: int) -> None:
        claims = self._claims.pop(reservation, None)
        if claims is None:
            raise StateError(f"reservation {reservation} is not held.", "Release what `reserve` gave, once.")
        for index in range(len(claims)):
            self._drop(reservation, index, claims[index])

    def claims(self, reservation: int) -> tuple[Claim, ...]:
        return self._claims[reservation]

    def share(self, node_id: str, device: int, start_s: float, end_s: float) -> float:
        """The most that is claimed of a device at any time of the window."""
        return _peak(self._shares.get((node_id, device), {}), start_s, end_s)

    def num_bytes(self, node_id: str, tier: str, start_s: float, end_s: float) -> int:
        """The most that is claimed of a node's tier ("device": of all its devices together)."""
        return int(_peak(self._bytes.get((node_id, tier), {}), start_s, end_s))

    def _reserve(self, reservation: int, claims: Sequence[Claim]) -> bool:
        taken: list[Claim] = []
        for claim in claims:
            if not all(self._slice_fits(claim, part) for part in claim.slices):
                for index, done in enumerate(taken):
                    self._drop(reservation, index, done)
                return False
            self._put(reservation, len(taken), claim)
            taken.append(claim)
        self._claims[reservation] = tuple(taken)
        return True

    def _take(self, reservation: int, claims: Sequence[Claim]) -> None:
        for index, claim in enumerate(claims):
            self._put(reservation, index, claim)
        self._claims[reservation] = tuple(claims)

    def _check(self, claims: Sequence[Claim]) -> None:
        """Before anything is changed."""
        for claim in claims:
            if not claim.end_s > claim.start_s or not 0 <= claim.share <= 1:
                raise StateError(
                    f"a claim of share {claim.share} from {claim.start_s} to {claim.end_s} s.", "Claim 0 to 1, of some time."
                )
            names = [part.node_id for part in claim.slices]
            if len(set(names)) < len(names):
                raise StateError(f"a claim names a node twice: {names}.", "Put all of a node's devices in one slice.")
            if unknown := [name for name in names if name not in self._view]:
                raise StateError(f"nodes {unknown} are not here.", "Claim devices that a search found.")

    def _slice_fits(self, claim: Claim, part: Slice) -> bool:
        node = self._view.node(part.node_id)
        limits = {"device": node.memory.device * node.num_devices, "host": node.memory.host, "disk": node.memory.disk}
        for tier, needed in _amounts(claim.each, len(part.devices)):
            if needed and needed + self.num_bytes(part.node_id, tier, claim.start_s, claim.end_s) > limits[tier]:
                return False
        room = 1 - claim.share + TOLERANCE
        return claim.each.device <= node.memory.device and all(
            0 <= device < node.num_devices and self.share(part.node_id, device, claim.start_s, claim.end_s) <= room
            for device in part.devices
        )

    def _put(self, reservation: int, index: int, claim: Claim) -> None:
        for number, part in enumerate(claim.slices):
            key = (reservation, index, number)
            entry = _Entry(claim.start_s, claim.end_s, claim.share)
            for device in part.devices:
                self._shares.setdefault((part.node_id, device), {})[key] = entry
            for tier, amount in _amounts(claim.each, len(part.devices)):
                if amount:
                    self._bytes.setdefault((part.node_id, tier), {})[key] = _Entry(claim.start_s, claim.end_s, amount)
            self._view.occupy(part)
            self._tell_memory(part.node_id)

    def _drop(self, reservation: int, index: int, claim: Claim) -> None:
        for number, part in enumerate(claim.slices):
            key = (reservation, index, number)
            for device in part.devices:
                del self._shares[part.node_id, device][key]
            for tier in Bytes.__struct_fields__:
                self._bytes.get((part.node_id, tier), {}).pop(key, None)
            free = tuple(device for device in part.devices if not self._shares[part.node_id, device])
            self._view.vacate(Slice(part.node_id, free))
            self._tell_memory(part.node_id)

    def _tell_memory(self, node_id: str) -> None:
        memory, ever = self._view.node(node_id).memory, (-float("inf"), float("inf"))
        host, disk = (self.num_bytes(node_id, tier, *ever) for tier in ("host", "disk"))
        self._view.set_memory(node_id, memory.host - host, memory.disk - disk)


def _amounts(each: Bytes, devices: int) -> list[tuple[str, int]]:
    return [("device", each.device * devices), ("host", each.host * devices), ("disk", each.disk * devices)]


def _peak(entries: dict[Key, _Entry], start_s: float, end_s: float) -> float:
    """The sum is highest where an entry of the window begins."""
    if not entries:
        return 0.0
    inside = [entry for entry in entries.values() if entry.start_s < end_s and entry.end_s > start_s]
    if all(entry.start_s <= start_s for entry in inside):
        return sum(entry.amount for entry in inside)
    times = {max(start_s, entry.start_s) for entry in inside}
    return max(sum(entry.amount for entry in inside if entry.start_s <= time < entry.end_s) for time in times)
