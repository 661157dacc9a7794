"""What a switch will take, from what was measured."""

import pytest

from plait.residency.eviction import least_soon
from plait.residency.ledger import ResidencyLedger
from plait.residency.rates import FIXED_BYTES, SMOOTHING, TransferRates
from plait.residency.setup import estimate_setup_s
from plait.residency.tier import TIERS, Tier

LOAD, COLD, OFFLOAD = (Tier.HOST, Tier.DEVICE), (Tier.DISK, Tier.DEVICE), (Tier.DEVICE, Tier.HOST)
BIG = FIXED_BYTES * 10


def test_rates_follow_what_is_measured() -> None:
    rates = TransferRates()
    assert 0 < rates.estimate_s(LOAD, BIG) < rates.estimate_s(COLD, BIG), "the disk is assumed to be slower"
    rates.observe(LOAD, BIG, 2.0)
    assert rates.estimate_s(LOAD, BIG) == pytest.approx(2.0)
    assert rates.estimate_s(LOAD, 3 * BIG) == pytest.approx(6.0)
    rates.observe(LOAD, BIG, 4.0)
    assert rates.estimate_s(LOAD, BIG) == pytest.approx(2.0 + SMOOTHING * 2.0)
    assert rates.estimate_s(LOAD, 0) == 0


def test_a_small_move_says_little_about_large_ones() -> None:
    rates = TransferRates()
    rates.observe(LOAD, 1, 0.01)
    assert rates.estimate_s(LOAD, BIG) == pytest.approx(0.1)
    rates.observe(LOAD, 0, 5.0)
    assert rates.estimate_s(LOAD, BIG) == pytest.approx(0.1)


def test_setup_is_what_has_to_leave_and_what_has_to_come() -> None:
    ledger, rates = ResidencyLedger({Tier.DEVICE: 2 * BIG, Tier.HOST: None, Tier.DISK: None}), TransferRates()
    for route, spent_s in ((LOAD, 1.0), (COLD, 10.0), (OFFLOAD, 3.0)):
        rates.observe(route, BIG, spent_s)

    def setup_s(*names: str) -> float:
        return estimate_setup_s(ledger, rates, least_soon, names, 0.0)

    for name in ("here", "clean", "warm", "cold"):
        ledger.put(name, {name: BIG})
    ledger.adopt(Tier.DEVICE, {"here": BIG})
    ledger.adopt(Tier.HOST, {"warm": BIG})
    ledger.adopt(Tier.DISK, {"cold": BIG})
    assert setup_s("here") == 0
    assert setup_s("warm") == pytest.approx(1)
    assert setup_s("cold") == pytest.approx(10)
    assert setup_s("warm", "cold") == pytest.approx(14), "one of them finds no room"
    ledger.adopt(Tier.DEVICE, {"clean": BIG})
    ledger.adopt(Tier.HOST, {"clean": BIG})
    ledger.touch("clean", 1.0)
    assert setup_s("warm") == pytest.approx(4), "the least recently used has no copy below"
    ledger.touch("here", 2.0)
    assert setup_s("warm") == pytest.approx(1), "the other has"
    assert set(TIERS) == set(Tier)
