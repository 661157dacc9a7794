"""Which contents lie in which tier, within budgets in bytes. Pure: no tensors, files, threads or clocks.

- A content is counted once per tier, however many groups use it.
- Bytes are reserved in the target tier before a move; the move commits or rolls back. So a tier's used bytes are those of its
  contents and its reservations, at most its budget (only `adopt` may exceed it).
- A content's last copy cannot be discarded as long as a group uses it; nothing can that a group pinned there uses.
- A saved group is the form in which a group was last written to disk: it keeps those contents there, even when the group has
  changed since.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import msgspec

from plait.residency.eviction import EvictionOrder, Resident
from plait.residency.tier import TIERS, Tier

Contents = Mapping[str, int]
"""Key -> bytes."""
Place = tuple[Tier, str]


class Reservation(msgspec.Struct, frozen=True):
    number: int
    tier: Tier
    contents: dict[str, int]


class ResidencyLedger:
    """`budgets`: bytes by tier; None is without bound, a tier that is not named holds nothing."""

    def __init__(self, budgets: Mapping[Tier, int | None]) -> None:
        self.budgets: dict[Tier, int | None] = {tier: budgets.get(tier, 0) for tier in TIERS}
        self._groups: dict[str, dict[str, int]] = {}
        self._saved: dict[str, frozenset[str]] = {}
        self._users: dict[str, set[str]] = defaultdict(set)
        self._savers: dict[str, set[str]] = defaultdict(set)
        self._present: dict[Tier, dict[str, int]] = {tier: {} for tier in TIERS}
        self._num_present: dict[Tier, Counter[str]] = {tier: Counter() for tier in TIERS}
        """Tier -> group -> how many of its contents are there."""
        self._used_bytes = dict.fromkeys(TIERS, 0)
        self._reservations: dict[int, Reservation] = {}
        self._num_made = 0
        self._pins: dict[Tier, Counter[str]] = {tier: Counter() for tier in TIERS}
        self._last_used_s: dict[str, float] = {}
        self._turns: dict[str, int] = {}

    # ---- what is known

    def __contains__(self, name: str) -> bool:
        return name in self._groups

    @property
    def num_reservations(self) -> int:
        return len(self._reservations)

    def used_bytes(self, tier: Tier) -> int:
        return self._used_bytes[tier]

    def contents(self, name: str) -> dict[str, int]:
        return dict(self._groups[name])

    def users(self, key: str) -> frozenset[str]:
        return frozenset(self._users.get(key, ()))

    def has(self, tier: Tier, key: str) -> bool:
        return key in self._present[tier]

    def place(self, key: str) -> Tier | None:
        """The fastest tier that holds a content."""
        return next((tier for tier in TIERS if key in self._present[tier]), None)

    def num_bytes(self, key: str) -> int:
        """0 if it is nowhere."""
        tier = self.place(key)
        return 0 if tier is None else self._present[tier][key]

    def place_below(self, key: str) -> Tier | None:
        """The fastest tier below the device that holds a content."""
        return next((tier for tier in TIERS[1:] if key in self._present[tier]), None)

    def missing(self, name: str, tier: Tier) -> dict[str, int]:
        if self.is_resident(name, tier):
            return {}
        return {key: num_bytes for key, num_bytes in self._groups[name].items() if key not in self._present[tier]}

    def is_resident(self, name: str, tier: Tier) -> bool:
        return self._num_present[tier][name] == len(self._groups[name])

    def tier(self, name: str) -> Tier | None:
        """The fastest tier that holds all of a group, else the slowest that loading it has to read; None if some of it is lost."""
        for tier in TIERS:
            if self.is_resident(name, tier):
                return tier
        places = [self.place(key) for key in self._groups[name]]
        return max((p for p in places if p is not None), key=lambda p: p.rank) if None not in places else None

    # ---- groups

    def put(self, name: str, contents: Contents) -> list[Place]:
        """Add a group, or change what it consists of; what nobody uses any more is returned, to be discarded."""
        before = self._groups.get(name, {})
        self._groups[name] = dict(contents)
        for key in before.keys() - contents.keys():
            self._leave(name, key)
        for key in contents.keys() - before.keys():
            self._users[key].add(name)
            for tier in TIERS:
                self._num_present[tier][name] += key in self._present[tier]
        return self._garbage(before.keys() - contents.keys())

    def remove(self, name: str) -> list[Place]:
        """Forget a group and its saved form; what nobody uses any more is returned, to be discarded."""
        contents = self._groups.pop(name)
        for key in contents:
            self._leave(name, key)
        for counts in (*self._num_present.values(), *self._pins.values()):
            del counts[name]
        self._last_used_s.pop(name, None)
        return sorted({*self._garbage(contents), *self.forget(name)})

    def _leave(self, name: str, key: str) -> None:
        self._users[key].discard(name)
        for tier in TIERS:
            self._num_present[tier][name] -= key in self._present[tier]

    def save(self, name: str, contents: Collection[str]) -> list[Place]:
        """What the disk holds of a group is now this; what nobody uses any more is returned, to be discarded."""
        before = self._saved.get(name, frozenset())
        self._saved[name] = frozenset(contents)
        for key in before - self._saved[name]:
            self._savers[key].discard(name)
        for key in self._saved[name] - before:
            self._savers[key].add(name)
        return self._garbage(before - self._saved[name])

    def forget(self, name: str) -> list[Place]:
        """Like `save` of nothing."""
        garbage = self.save(name, ())
        del self._saved[name]
        return garbage

    def saved(self, name: str) -> frozenset[str]:
        return self._saved.get(name, frozenset())

    def stale(self) -> list[str]:
        """Groups whose saved form is not what they are now, the least recently used first."""
        names = [name for name, keys in self._saved.items() if keys != self._groups.get(name, {}).keys()]
        return sorted(names, key=lambda name: (self._last_used_s.get(name, 0.0), name))

    def _garbage(self, keys: Iterable[str]) -> list[Place]:
        found: list[Place] = []
        for key in sorted(keys):
            tiers = TIERS if not self._savers.get(key) else (Tier.DEVICE, Tier.HOST)
            if not self._users.get(key):
                found += [(tier, key) for tier in tiers if key in self._present[tier]]
        return found

    def rename(self, old: str, new: str) -> list[Tier]:
        """Give a content its final key; the tiers that held both, and now hold one of two equal copies."""
        for name in self._users.pop(old, ()):
            self._groups[name] = {new if key == old else key: num_bytes for key, num_bytes in self._groups[name].items()}
            self._users[new].add(name)
        merged = []
        for tier, present in self._present.items():
            num_bytes = present.pop(old, None)
            if num_bytes is not None and new in present:
                merged.append(tier)
                self._used_bytes[tier] -= num_bytes
            elif num_bytes is not None:
                present[new] = num_bytes
        for name in self._users[new]:
            for tier, present in self._present.items():
                self._num_present[tier][name] = sum(key in present for key in self._groups[name])
        return merged

    # ---- bytes

    def shortfall(self, tier: Tier, num_bytes: int) -> int:
        """How many bytes have to leave a tier before so many fit."""
        budget = self.budgets[tier]
        return 0 if budget is None else max(0, self._used_bytes[tier] + num_bytes - budget)

    def reserve(self, tier: Tier, contents: Contents) -> Reservation | None:
        """Room for contents that are to come; None as long as there is not enough."""
        num_bytes = sum(contents.values())
        if self.shortfall(tier, num_bytes):
            return None
        self._num_made += 1
        reservation = Reservation(self._num_made, tier, dict(contents))
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

    def adopt(self, tier: Tier, contents: Contents) -> None:
        """Count contents that are there anyway, even beyond the budget."""
        for key, num_bytes in contents.items():
            if key in self._present[tier]:
                continue
            self._present[tier][key] = num_bytes
            self._used_bytes[tier] += num_bytes
            for name in self._users.get(key, ()):
                self._num_present[tier][name] += 1

    def discard(self, tier: Tier, key: str, is_lost: bool = False) -> None:
        """A content leaves a tier. ValueError if it is needed there; with `is_lost` it is gone all the same."""
        if not is_lost and self.is_needed(tier, key):
            raise ValueError(f"content {key} is needed in {tier.value}")
        self._used_bytes[tier] -= self._present[tier].pop(key)
        for name in self._users.get(key, ()):
            self._num_present[tier][name] -= 1

    def is_needed(self, tier: Tier, key: str) -> bool:
        """Whether a content is in use there, or this is its last copy."""
        users = self._users.get(key, ())
        is_saved = tier is Tier.DISK and bool(self._savers.get(key))
        return (bool(users) and self.is_last(tier, key)) or is_saved or any(self._pins[tier][name] for name in users)

    def is_last(self, tier: Tier, key: str) -> bool:
        """Whether no other tier holds a content."""
        return not any(key in self._present[other] for other in TIERS if other is not tier)

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
