"""Acceptance is measured per position, apart for the tail, and forgets."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.drafting.acceptance import GAMMA_MAX, PRIOR_RATE, Acceptance
from plait.drafting.draft import Draft
from plait.drafting.draft_tree import DraftTree, merged

PATHS = st.lists(st.floats(0.1, 1.0), max_size=10).map(lambda shares: tuple(_products(shares)))


def _products(shares: list[float]) -> list[float]:
    path, found = 1.0, []
    for share in shares:
        path *= share
        found.append(path)
    return found


def chain(*probabilities: float) -> DraftTree:
    return merged([Draft(tuple(range(len(probabilities))), probabilities)])


def drawn(num_accepted: int) -> tuple[int, ...]:
    """What comes out when so many tokens of a chain hold."""
    return (*range(num_accepted), 99)


def verify(random: Random, betas: tuple[float, ...]) -> int:
    return next((i for i, beta in enumerate(betas) if random.random() >= beta), len(betas))


def test_each_position_finds_its_rate() -> None:
    acceptance, random, betas = Acceptance(), Random(0), (0.9, 0.5, 0.8)
    for _ in range(2000):
        acceptance.observe(chain(0.7, 0.5, 0.4), drawn(verify(random, betas)))
    assert [acceptance.rate(i) for i in range(3)] == pytest.approx(betas, abs=0.1)
    assert acceptance.calibrate(chain(0.7, 0.5, 0.4)) == pytest.approx((0.9, 0.45, 0.36), abs=0.1)
    assert acceptance.rate(3) == acceptance.rate(0, is_tail=True) == PRIOR_RATE


def test_without_trials_a_draft_is_believed() -> None:
    assert Acceptance().calibrate(chain(0.7, 0.5, 0.4), is_tail=True) == pytest.approx((0.7, 0.5, 0.4))


def test_a_change_is_noticed() -> None:
    acceptance = Acceptance()
    for num_accepted in [2] * 500 + [0] * 500:
        acceptance.observe(chain(0.9, 0.9), drawn(num_accepted))
    assert acceptance.rate(0) < 0.05
    for _ in range(100):
        acceptance.observe(chain(0.9, 0.9), drawn(2))
    assert acceptance.rate(0) > 0.5


def test_long_matches_and_short_ones_are_told_apart() -> None:
    """As where one task's answers are alike and another's are not: what the drafter says of both is the same."""
    acceptance, random = Acceptance(), Random(1)
    long, short = (merged([Draft((0, 1), (0.9, 0.9), match_tokens=num)]) for num in (30, 1))
    for _ in range(300):
        acceptance.observe(long, drawn(2 if random.random() < 0.95 else 0))
        acceptance.observe(short, drawn(1 if random.random() < 0.1 else 0))
    assert acceptance.calibrate(long)[0] > 0.85
    assert acceptance.calibrate(short)[0] < 0.25
    assert acceptance.rate(0) == pytest.approx(0.52, abs=0.12)


FORK = merged([Draft((1, 2, 3), (0.6, 0.4, 0.3)), Draft((1, 4), (0.6, 0.2)), Draft((5, 6), (0.3, 0.3))])
"""1 and 5 for the first place, 2 and 4 after the 1."""


def test_the_second_for_a_place_is_measured_whether_it_is_verified_or_not() -> None:
    """Half of the time 1 is drawn and then 4, else 5: what was thought less likely is as likely, and the third never comes."""
    acceptance, random = Acceptance(), Random(2)
    for _ in range(600):
        acceptance.observe(FORK, random.choice([(1, 4), (5,)]), is_tail=True)
    assert acceptance.rate(0, is_tail=True) == pytest.approx(0.5, abs=0.12)
    assert acceptance.rate(1, is_tail=True) < 0.05
    assert acceptance.other_rate(1, is_tail=True) == pytest.approx(2 / 3, abs=0.12)
    first, _, _, beside, other, _ = acceptance.calibrate(FORK, is_tail=True)
    assert FORK.tokens == (1, 2, 3, 4, 5, 6)
    assert beside > 0.6 * first
    assert other == pytest.approx(1 - first, abs=0.12)
    elsewhere = acceptance.calibrate(FORK)
    assert elsewhere[0] < 0.5, "what the tail shows of the likeliest tokens holds for the rest until it shows otherwise"
    assert elsewhere[4] == pytest.approx(0.3)


TREES = st.lists(st.lists(st.tuples(st.integers(0, 2), st.floats(0.2, 1.0)), min_size=1, max_size=10), min_size=1, max_size=4).map(
    lambda paths: merged([Draft(tuple(t for t, _ in path), tuple(_products([s for _, s in path]))) for path in paths])
)
DRAWN = st.lists(st.integers(0, 3), max_size=10)


def lowered(tree: DraftTree) -> DraftTree:
    """A tree of paths that are not consistent, made one whose probabilities never rise to a child."""
    found: list[float] = []
    for node, parent in enumerate(tree.parents):
        found.append(min(tree.probabilities[node], found[parent] if parent >= 0 else 1.0))
    return DraftTree(tree.tokens, tree.parents, tuple(found))


@given(st.lists(st.tuples(TREES.map(lowered), DRAWN, st.booleans()), max_size=8), TREES.map(lowered), st.booleans())
def test_calibrated_chances_of_a_tree_are_chances(
    trials: list[tuple[DraftTree, list[int], bool]], tree: DraftTree, is_tail: bool
) -> None:
    acceptance = Acceptance()
    for tried, tokens, tail in trials:
        acceptance.observe(tried, tokens, tail)
    found = acceptance.calibrate(tree, is_tail)
    assert len(found) == len(tree)
    for node in range(-1, len(tree)):
        children = [n for n, parent in enumerate(tree.parents) if parent == node]
        assert sum(found[n] for n in children) <= (found[node] if node >= 0 else 1.0) + 1e-9
        assert all(found[n] >= 0 for n in children)


@given(st.lists(st.tuples(PATHS, st.integers(0, 10), st.booleans())), PATHS, st.booleans())
def test_calibrated_chances_are_chances_and_never_rise(trials: list[tuple], path: tuple[float, ...], is_tail: bool) -> None:
    acceptance = Acceptance()
    for probabilities, num_accepted, tail in trials:
        acceptance.observe(chain(*probabilities), drawn(min(num_accepted, len(probabilities))), tail)
    found = acceptance.calibrate(chain(*path), is_tail)
    assert len(found) == len(path)
    assert not any(found[GAMMA_MAX:])
    found = found[:GAMMA_MAX]
    assert all(0 < later <= earlier <= 1 for earlier, later in zip((1.0, *found), found, strict=False))
