"""Which groups use which contents, and in which tiers those are. Pure."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from plait.residency.tier import TIERS, Tier

Contents = Mapping[str, int]
"""Key -> bytes."""
Place = tuple[Tier, str]


class Holdings:
    """The part of a ledger that knows no budgets: see `ResidencyLedger`."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[str, int]] = {}
        self._saved: dict[str, frozenset[str]] = {}
        self._users: dict[str, set[str]] = {}
        self._savers: dict[str, set[str]] = {}
        self._present: dict[Tier, dict[str, int]] = {tier: {} for tier in TIERS}
        self._num_present: dict[Tier, Counter[str]] = {tier: Counter() for tier in TIERS}
        """Tier -> group -> how many of its contents are there."""
        self._used_bytes = dict.fromkeys(TIERS, 0)

    # ---- what is known

    def __contains__(self, name: str) -> bool:
        return name in self._groups

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

    def is_last(self, tier: Tier, key: str) -> bool:
        """Whether no other tier holds a content."""
        return not any(key in self._present[other] for other in TIERS if other is not tier)

    def is_garbage(self, tier: Tier, key: str) -> bool:
        """Whether a content is there for nobody."""
        return key in self._present[tier] and key not in self._users and not (tier is Tier.DISK and key in self._savers)

    # ---- groups

    def put(self, name: str, contents: Contents) -> list[Place]:
        """Add a group, or change what it consists of; what nobody uses any more is returned, to be discarded."""
        before = self._groups.get(name, {})
        self._groups[name] = dict(contents)
        for key in before.keys() - contents.keys():
            self._leave(name, key)
        for key in contents.keys() - before.keys():
            self._users.setdefault(key, set()).add(name)
            for tier in TIERS:
                self._num_present[tier][name] += key in self._present[tier]
        return self._garbage(before.keys() - contents.keys())

    def remove(self, name: str) -> list[Place]:
        """Forget a group and its saved form; what nobody uses any more is returned, to be discarded."""
        contents = self._groups.pop(name)
        for key in contents:
            self._leave(name, key)
        for counts in self._num_present.values():
            del counts[name]
        return sorted({*self._garbage(contents), *self.forget(name)})

    def _leave(self, name: str, key: str) -> None:
        _leave(self._users, key, name)
        for tier in TIERS:
            self._num_present[tier][name] -= key in self._present[tier]

    def save(self, name: str, contents: Collection[str]) -> list[Place]:
        """What the disk holds of a group is now this; what nobody uses any more is returned, to be discarded."""
        before = self._saved.get(name, frozenset())
        self._saved[name] = frozenset(contents)
        for key in before - self._saved[name]:
            _leave(self._savers, key, name)
        for key in self._saved[name] - before:
            self._savers.setdefault(key, set()).add(name)
        return self._garbage(before - self._saved[name])

    def forget(self, name: str) -> list[Place]:
        """Like `save` of nothing."""
        garbage = self.save(name, ())
        del self._saved[name]
        return garbage

    def saved(self, name: str) -> frozenset[str]:
        return self._saved.get(name, frozenset())

    def _garbage(self, keys: Iterable[str]) -> list[Place]:
        return [(tier, key) for key in sorted(keys) for tier in TIERS if self.is_garbage(tier, key)]

    def rename(self, keys: Mapping[str, str]) -> None:
        """Give contents their final keys, by the old. A tier that held both now holds one of two equal copies."""
        renamed: set[str] = set()
        for old, new in keys.items():
            users = self._users.pop(old, set())
            if users:
                self._users.setdefault(new, set()).update(users)
                renamed |= users
            for tier, present in self._present.items():
                num_bytes = present.pop(old, None)
                if num_bytes is not None and new in present:
                    self._used_bytes[tier] -= num_bytes
                elif num_bytes is not None:
                    present[new] = num_bytes
        for name in renamed:
            self._groups[name] = {keys.get(key, key): num_bytes for key, num_bytes in self._groups[name].items()}
        for name in {user for new in keys.values() for user in self._users.get(new, ())}:
            for tier, present in self._present.items():
                self._num_present[tier][name] = sum(key in present for key in self._groups[name])

    # ---- contents

    def adopt(self, tier: Tier, contents: Contents) -> None:
        """Count contents that are there anyway, even beyond the budget."""
        for key, num_bytes in contents.items():
            if key in self._present[tier]:
                continue
            self._present[tier][key] = num_bytes
            self._used_bytes[tier] += num_bytes
            for name in self._users.get(key, ()):
                self._num_present[tier][name] += 1

    def _take(self, tier: Tier, key: str) -> None:
        self._used_bytes[tier] -= self._present[tier].pop(key)
        for name in self._users.get(key, ()):
            self._num_present[tier][name] -= 1


def _leave(holders: dict[str, set[str]], key: str, name: str) -> None:
    holders[key].discard(name)
    if not holders[key]:
        del holders[key]
