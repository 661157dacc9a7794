"""Which contents lie in which tier, within budgets in bytes. Pure: no tensors, files, threads or clocks.

- A content is counted once per tier, however many groups use it.
- Bytes are reserved in the target tier before a move; the move commits or rolls back. So a tier's used bytes are those of its
  contents and its reservations, at most its budget (only `adopt` may exceed it).
- A content's last copy cannot be discarded as long as a group uses it; nothing can that a group pinned there uses.
- A saved group is the form in which a group was last written to disk: it keeps those contents there, even when the group has
  changed since.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import msgspec

from plait.residency.eviction import EvictionOrder, Resident
from plait.residency.holdings import Contents, Holdings, Place
from plait.residency.tier import TIERS, Tier


class Reservation(msgspec.Struct, frozen=True):
    """`is_lasting`: it is nobody's move, and ends when its owner pleases."""

    number: int
    tier: Tier
    contents: dict[str, int]
    is_lasting: bool = False


class ResidencyLedger(Holdings):
    """`budgets`: bytes by tier; None is without bound, a tier that is not named holds nothing."""

    def __init__(self, budgets: Mapping[Tier, int | None]) -> None:
        super().__init__()
        self.budgets: dict[Tier, int | None] = {tier: budgets.get(tier, 0) for tier in TIERS}
        self._reservations: dict[int, Reservation] = {}
        self._num_made = 0
        self._pins: dict[Tier, Counter[str]] = {tier: Counter() for tier in TIERS}
        self._last_used_s: dict[str, float] = {}
        self._turns: dict[str, int] = {}

    def remove(self, name: str) -> list[Place]:
        for counts in self._pins.values():
            del counts[name]
        self._last_used_s.pop(name, None)
        return super().remove(name)

    # ---- bytes

    @property
    def num_reservations(self) -> int:
        return len(self._reservations)

    @property
    def is_moving(self) -> bool:
        """Whether a move has its room and has not ended."""
        return any(not reservation.is_lasting for reservation in self._reservations.values())

    def used_bytes(self, tier: Tier) -> int:
        """Of what is there and of what is to come."""
        return self._used_bytes[tier]

    def shortfall(self, tier: Tier, num_bytes: int) -> int:
        """How many bytes have to leave a tier before so many fit."""
        budget = self.budgets[tier]
        return 0 if budget is None else max(0, self._used_bytes[tier] + num_bytes - budget)

    def reserve(self, tier: Tier, contents: Contents, is_lasting: bool = False) -> Reservation | None:
        """Room for contents that are to come; None as long as there is not enough."""
        num_bytes = sum(contents.values())
        if self.shortfall(tier, num_bytes):
            return None
        self._num_made += 1
        reservation = Reservation(self._num_made, tier, dict(contents), is_lasting)
        self._reservations[reservation.number] = reservation
        self._used_bytes[tier] += num_bytes
        return reservation

    def commit(self, reservation: Reservation) -> None:
        """The contents have come. KeyError if the reservation has ended before."""
        self.roll_back(reservation)
        self.adopt(reservation.tier, reservation.contents)

    def roll_back(self, reservation: Reservation) -> None:
        """They will not come. KeyError if the reservation has ended before."""
        del self._reservations[reservation.number]
        self._used_bytes[reservation.tier] -= sum(reservation.contents.values())

    def discard(self, tier: Tier, key: str, is_lost: bool = False) -> None:
        """A content leaves a tier. ValueError if it is needed there; with `is_lost` it is gone all the same."""
        if not is_lost and self.is_needed(tier, key):
            raise ValueError(f"content {key} is needed in {tier.value}")
        self._take(tier, key)

    def is_needed(self, tier: Tier, key: str) -> bool:
        """Whether a content is in use there, or this is its last copy."""
        users = self._users.get(key, ())
        is_saved = tier is Tier.DISK and bool(self._savers.get(key))
        return (bool(users) and self.is_last(tier, key)) or is_saved or any(self._pins[tier][name] for name in users)

    def spare(self, tier: Tier) -> list[Place]:
        """What is there and could leave at once: others have it too, and nobody needs it there."""
        return [(tier, key) for key in self._present[tier] if not self.is_needed(tier, key)]

    # ---- use

    def pin(self, name: str, tiers: Iterable[Tier] = (Tier.DEVICE,)) -> None:
        """What the group has in these tiers, or will have, stays until it is unpinned as often."""
        for tier in tiers:
            self._pins[tier][name] += 1

    def unpin(self, name: str, tiers: Iterable[Tier] = (Tier.DEVICE,)) -> None:
        for tier in tiers:
            if not self._pins[tier][name]:
                raise ValueError(f"group {name!r} is not pinned in {tier.value}")
            self._pins[tier][name] -= 1

    def pins(self, name: str, tier: Tier = Tier.DEVICE) -> int:
        return self._pins[tier][name]

    def touch(self, name: str, now_s: float) -> None:
        self._last_used_s[name] = now_s

    def hint(self, names: Sequence[str]) -> None:
        """What runs next, the first first."""
        self._turns = {name: turn for turn, name in enumerate(dict.fromkeys(names))}

    def turn(self, name: str) -> int | None:
        return self._turns.get(name)

    def sooner(self, name: str) -> frozenset[str]:
        """What has a turn before a group; a group without a turn comes after all that have one."""
        last = self._turns.get(name, len(self._turns))
        return frozenset(other for other, turn in self._turns.items() if turn < last)

    def stale(self) -> list[str]:
        """Groups whose saved form is not what they are now, the least recently used first."""
        names = [name for name, keys in self._saved.items() if keys != self._groups.get(name, {}).keys()]
        return sorted(names, key=lambda name: (self._last_used_s.get(name, 0.0), name))

    # ---- leaving

    def victims(
        self, tier: Tier, num_bytes: int, order: EvictionOrder, now_s: float, spared: Collection[str] = ()
    ) -> tuple[str, ...] | None:
        """Groups that together free so many bytes when they leave a tier; None if no groups that are not pinned or spared do."""
        if num_bytes <= 0:
            return ()
        names = order(self._residents(tier, spared), now_s)
        freed_bytes = 0
        for count, freed in enumerate(self._in_turn(tier, names), start=1):
            freed_bytes += sum(freed.values())
            if freed_bytes >= num_bytes:
                return tuple(names[:count])
        return None

    def _residents(self, tier: Tier, spared: Collection[str]) -> list[Resident]:
        faster = TIERS[: tier.rank]
        return [
            Resident(name, self._last_used_s.get(name, 0.0), self.turn(name), any(self.is_resident(name, t) for t in faster))
            for name, num_present in self._num_present[tier].items()
            if num_present and not self._pins[tier][name] and name not in spared
        ]

    def freed(self, tier: Tier, names: Sequence[str]) -> dict[str, int]:
        """Contents that nobody else needs in a tier once these groups leave it."""
        freed: dict[str, int] = {}
        for more in self._in_turn(tier, [name for name in names if not self._pins[tier][name]]):
            freed |= more
        return freed

    def _in_turn(self, tier: Tier, names: Sequence[str]) -> Iterator[dict[str, int]]:
        """What each of the groups frees beyond what those before it do."""
        leaving: set[str] = set()
        seen: set[str] = set()
        for name in names:
            leaving.add(name)
            keys = [key for key in self._groups[name] if key in self._present[tier] and key not in seen]
            freed = {key: self._present[tier][key] for key in keys if self._leaves(tier, key, leaving)}
            seen |= freed.keys()
            yield freed

    def _leaves(self, tier: Tier, key: str, leaving: Collection[str]) -> bool:
        return all(user in leaving or not self._stays(tier, user) for user in self._users[key])

    def _stays(self, tier: Tier, name: str) -> bool:
        return self._pins[tier][name] > 0 or self.is_resident(name, tier)
