"""The ledger agrees with a slow one that keeps nothing but the facts, whatever happens in whatever order."""

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from plait.residency.eviction import least_soon
from plait.residency.ledger import Reservation, ResidencyLedger
from plait.residency.tier import TIERS, Tier

NAMES = ["a", "b", "c", "d"]
SIZES = {f"k{number}": number // 2 * 4 + 1 for number in range(8)}
"""Two of each size, since a content may turn out to be equal to another."""
BUDGETS = {Tier.DEVICE: 30, Tier.HOST: 40, Tier.DISK: None}
names, keys, tiers = st.sampled_from(NAMES), st.sampled_from(sorted(SIZES)), st.sampled_from(TIERS)
contents = st.sets(keys, min_size=1, max_size=4).map(lambda chosen: {key: SIZES[key] for key in chosen})


class Facts:
    """Everything is worked out anew from who has what."""

    def __init__(self) -> None:
        self.groups: dict[str, set[str]] = {}
        self.saved: dict[str, set[str]] = {}
        self.present: dict[Tier, set[str]] = {tier: set() for tier in TIERS}
        self.pins: list[tuple[Tier, str]] = []
        self.reservations: list[Reservation] = []

    def used_bytes(self, tier: Tier) -> int:
        reserved = sum(sum(r.contents.values()) for r in self.reservations if r.tier is tier)
        return sum(SIZES[key] for key in self.present[tier]) + reserved

    def users(self, key: str) -> set[str]:
        return {name for name, chosen in self.groups.items() if key in chosen}

    def savers(self, key: str) -> set[str]:
        return {name for name, chosen in self.saved.items() if key in chosen}

    def is_needed(self, tier: Tier, key: str) -> bool:
        elsewhere = any(key in self.present[other] for other in TIERS if other is not tier)
        in_use = any((tier, name) in self.pins for name in self.users(key))
        return (bool(self.users(key)) and not elsewhere) or in_use or (tier is Tier.DISK and bool(self.savers(key)))

    def freed(self, tier: Tier, leaving: set[str]) -> set[str]:
        def stays(name: str) -> bool:
            return name not in leaving and ((tier, name) in self.pins or self.groups[name] <= self.present[tier])

        chosen = {key for name in leaving for key in self.groups[name] & self.present[tier]}
        return {key for key in chosen if not any(stays(name) for name in self.users(key))}

    def garbage(self) -> set[tuple[Tier, str]]:
        unused = {(t, key) for t in TIERS for key in self.present[t] if not self.users(key)}
        return {(tier, key) for tier, key in unused if not (tier is Tier.DISK and self.savers(key))}


class LedgerMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.ledger, self.facts, self.now_s = ResidencyLedger(BUDGETS), Facts(), 0.0

    def _sweep(self, returned: list[Any], before: set[tuple[Tier, str]]) -> None:
        """What was returned is what has become garbage; it goes."""
        assert set(returned) == self.facts.garbage() - before
        assert len(returned) == len(set(returned))
        for tier, key in returned:
            self.ledger.discard(tier, key)
            self.facts.present[tier].discard(key)

    @rule(name=names, chosen=contents)
    def put(self, name: str, chosen: dict[str, int]) -> None:
        before = self.facts.garbage()
        self.facts.groups[name] = set(chosen)
        self._sweep(self.ledger.put(name, chosen), before)

    @precondition(lambda self: self.facts.groups)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        name, before = data.draw(st.sampled_from(sorted(self.facts.groups))), self.facts.garbage()
        del self.facts.groups[name]
        self.facts.saved.pop(name, None)
        self.facts.pins = [pin for pin in self.facts.pins if pin[1] != name]
        self._sweep(self.ledger.remove(name), before)

    @precondition(lambda self: self.facts.groups)
    @rule(data=st.data())
    def save(self, data: st.DataObject) -> None:
        name, before = data.draw(st.sampled_from(sorted(self.facts.groups))), self.facts.garbage()
        self.facts.saved[name] = set(self.facts.groups[name])
        self._sweep(self.ledger.save(name, self.ledger.contents(name)), before)
        assert self.ledger.saved(name) == self.facts.saved[name]

    @precondition(lambda self: self.facts.saved)
    @rule(data=st.data())
    def forget(self, data: st.DataObject) -> None:
        name, before = data.draw(st.sampled_from(sorted(self.facts.saved))), self.facts.garbage()
        del self.facts.saved[name]
        self._sweep(self.ledger.forget(name), before)

    @rule(tier=tiers, chosen=contents)
    def reserve(self, tier: Tier, chosen: dict[str, int]) -> None:
        num_bytes, budget = sum(chosen.values()), BUDGETS[tier]
        over = 0 if budget is None else max(0, self.facts.used_bytes(tier) + num_bytes - budget)
        assert self.ledger.shortfall(tier, num_bytes) == over
        reservation = self.ledger.reserve(tier, chosen)
        assert (reservation is None) == (over > 0)
        self.facts.reservations += [reservation] if reservation else []

    @precondition(lambda self: self.facts.reservations)
    @rule(data=st.data(), is_done=st.booleans())
    def end_reservation(self, data: st.DataObject, is_done: bool) -> None:
        number = data.draw(st.integers(0, len(self.facts.reservations) - 1))
        reservation = self.facts.reservations.pop(number)
        (self.ledger.commit if is_done else self.ledger.roll_back)(reservation)
        with pytest.raises(KeyError):
            self.ledger.roll_back(reservation)
        if is_done:
            self.facts.present[reservation.tier] |= reservation.contents.keys()

    @rule(tier=tiers, key=keys, is_lost=st.booleans())
    def discard(self, tier: Tier, key: str, is_lost: bool) -> None:
        if key not in self.facts.present[tier]:
            return
        if self.facts.is_needed(tier, key) and not is_lost:
            with pytest.raises(ValueError, match=key):
                self.ledger.discard(tier, key)
            return
        self.ledger.discard(tier, key, is_lost)
        self.facts.present[tier].discard(key)

    @rule(tier=tiers, name=names)
    def pin(self, tier: Tier, name: str) -> None:
        if name in self.facts.groups:
            self.ledger.pin(name, [tier])
            self.facts.pins.append((tier, name))

    @rule(tier=tiers, name=names)
    def unpin(self, tier: Tier, name: str) -> None:
        if (tier, name) in self.facts.pins:
            self.ledger.unpin(name, [tier])
            self.facts.pins.remove((tier, name))
        else:
            with pytest.raises(ValueError, match=name):
                self.ledger.unpin(name, [tier])

    @rule(old=keys, new=keys)
    def rename(self, old: str, new: str) -> None:
        """As of a private content: one whose bytes are as many, that no saved group and no move knows."""
        in_moves = any(old in reservation.contents for reservation in self.facts.reservations)
        if old == new or self.facts.savers(old) or in_moves or SIZES[old] != SIZES[new]:
            return
        self.ledger.rename({old: new})
        for held in (*self.facts.groups.values(), *self.facts.present.values()):
            if old in held:
                held.remove(old)
                held.add(new)

    @rule(name=names, hinted=st.lists(names, max_size=4))
    def use(self, name: str, hinted: list[str]) -> None:
        self.now_s += 1
        if name in self.facts.groups:
            self.ledger.touch(name, self.now_s)
        self.ledger.hint(hinted)
        first = list(dict.fromkeys(hinted))
        assert self.ledger.sooner(name) == set(first[: first.index(name)] if name in first else first)

    @rule(tier=tiers, num_bytes=st.integers(1, 40), spared=st.sets(names, max_size=2))
    def victims(self, tier: Tier, num_bytes: int, spared: set[str]) -> None:
        def freed_bytes(leaving: Any) -> int:
            return sum(SIZES[key] for key in self.facts.freed(tier, set(leaving)))

        may = {n for n in self.facts.groups if (tier, n) not in self.facts.pins and n not in spared}
        may = {name for name in may if self.facts.groups[name] & self.facts.present[tier]}
        found = self.ledger.victims(tier, num_bytes, least_soon, self.now_s, spared)
        if found is None:
            assert freed_bytes(may) < num_bytes
            return
        assert set(found) <= may
        assert set(self.ledger.freed(tier, found)) == self.facts.freed(tier, set(found))
        assert freed_bytes(found) >= num_bytes > freed_bytes(found[:-1])

    @invariant()
    def accounting_sums(self) -> None:
        for tier in TIERS:
            assert self.ledger.used_bytes(tier) == self.facts.used_bytes(tier)
            budget = BUDGETS[tier]
            assert budget is None or self.ledger.used_bytes(tier) <= budget
        assert self.ledger.num_reservations == len(self.facts.reservations)

    @invariant()
    def everybody_knows_where_everything_is(self) -> None:
        for key in SIZES:
            assert self.ledger.users(key) == self.facts.users(key)
            assert [self.ledger.has(tier, key) for tier in TIERS] == [key in self.facts.present[tier] for tier in TIERS]
        for name, chosen in self.facts.groups.items():
            for tier in TIERS:
                assert self.ledger.missing(name, tier).keys() == chosen - self.facts.present[tier]
                assert self.ledger.is_resident(name, tier) == (chosen <= self.facts.present[tier])


TestLedger = LedgerMachine.TestCase
TestLedger.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_the_tier_of_a_group_is_that_of_its_slowest_content() -> None:
    ledger = ResidencyLedger(dict.fromkeys(TIERS))
    ledger.put("a", {"x": 1, "y": 1})
    assert ledger.tier("a") is None
    ledger.adopt(Tier.DEVICE, {"x": 1})
    ledger.adopt(Tier.DISK, {"y": 1})
    assert ledger.tier("a") is Tier.DISK
    ledger.adopt(Tier.DISK, {"x": 1})
    ledger.adopt(Tier.DEVICE, {"y": 1})
    assert ledger.tier("a") is Tier.DEVICE


def test_saved_forms_that_are_no_more_what_a_group_is_are_stale() -> None:
    ledger = ResidencyLedger(dict.fromkeys(TIERS))
    for number, name in enumerate(("late", "early")):
        ledger.put(name, {f"{name}1": 1})
        ledger.save(name, ledger.contents(name))
        ledger.touch(name, -number)
    assert ledger.stale() == []
    for name in ("late", "early"):
        ledger.put(name, {f"{name}2": 1})
    assert ledger.stale() == ["early", "late"]
