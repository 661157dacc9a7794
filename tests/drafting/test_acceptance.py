"""Acceptance is measured per position, apart for the tail, and forgets."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.drafting.acceptance import GAMMA_MAX, PRIOR_RATE, Acceptance

PATHS = st.lists(st.floats(0.1, 1.0), max_size=10).map(lambda shares: tuple(_products(shares)))


def _products(shares: list[float]) -> list[float]:
    path, found = 1.0, []
    for share in shares:
        path *= share
        found.append(path)
    return found


def verify(random: Random, betas: tuple[float, ...]) -> int:
    return next((i for i, beta in enumerate(betas) if random.random() >= beta), len(betas))


def test_each_position_finds_its_rate() -> None:
    acceptance, random, betas = Acceptance(), Random(0), (0.9, 0.5, 0.8)
    for _ in range(2000):
        acceptance.observe((0.7, 0.5, 0.4), verify(random, betas))
    assert [acceptance.rate(i) for i in range(3)] == pytest.approx(betas, abs=0.1)
    assert acceptance.calibrate((0.7, 0.5, 0.4)) == pytest.approx((0.9, 0.45, 0.36), abs=0.1)
    assert acceptance.rate(3) == acceptance.rate(0, is_tail=True) == PRIOR_RATE


def test_without_trials_a_draft_is_believed() -> None:
    assert Acceptance().calibrate((0.7, 0.5, 0.4), is_tail=True) == pytest.approx((0.7, 0.5, 0.4))


def test_a_change_is_noticed() -> None:
    acceptance = Acceptance()
    for num_accepted in [2] * 500 + [0] * 500:
        acceptance.observe((0.9, 0.9), num_accepted)
    assert acceptance.rate(0) < 0.05
    for _ in range(100):
        acceptance.observe((0.9, 0.9), 2)
    assert acceptance.rate(0) > 0.5


@given(st.lists(st.tuples(PATHS, st.integers(0, 10), st.booleans())), PATHS, st.booleans())
def test_calibrated_chances_are_chances_and_never_rise(trials: list[tuple], path: tuple[float, ...], is_tail: bool) -> None:
    acceptance = Acceptance()
    for probabilities, num_accepted, tail in trials:
        acceptance.observe(probabilities, min(num_accepted, len(probabilities)), tail)
    found = acceptance.calibrate(path, is_tail)
    assert len(found) == min(len(path), GAMMA_MAX)
    assert all(0 < later <= earlier <= 1 for earlier, later in zip((1.0, *found), found, strict=False))
