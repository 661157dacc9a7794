"""Advantages: hand-computed values, and what must give exact zeros (P48)."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.training.advantages import group_advantages
from plait.types.errors import ConfigError

COMPARING = ("group_centred", "group_standardised", "leave_one_out")
rewards = st.lists(st.floats(-100, 100), min_size=1, max_size=9)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("raw", [1.0, 0.0, 0.0, 1.0]),
        ("group_centred", [0.5, -0.5, -0.5, 0.5]),
        ("group_standardised", [1.0, -1.0, -1.0, 1.0]),
        ("leave_one_out", [2 / 3, -2 / 3, -2 / 3, 2 / 3]),
    ],
)
def test_hand_computed(kind: str, expected: list[float]) -> None:
    assert group_advantages(kind, [1.0, 0.0, 0.0, 1.0]) == pytest.approx(expected, abs=1e-15)


@pytest.mark.parametrize("kind", COMPARING)
@pytest.mark.parametrize("group", [[0.1, 0.1, 0.1], [0.0], [7.0], [0.1 + 0.2, 0.3], [], [math.nan], [math.nan, 1.0]])
def test_without_spread_exact_zeros(kind: str, group: list[float]) -> None:
    assert group_advantages(kind, group) == [0.0] * len(group)


@pytest.mark.parametrize("kind", [*COMPARING, "raw"])
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_reward_that_is_no_number_poisons_nobody(kind: str, bad: float) -> None:
    with_bad = group_advantages(kind, [1.0, bad, 0.0, 0.5])
    assert with_bad[1] == 0.0
    assert with_bad[:1] + with_bad[2:] == group_advantages(kind, [1.0, 0.0, 0.5])


@given(rewards)
def test_compared_advantages_sum_to_zero_and_keep_the_order(group: list[float]) -> None:
    for kind in COMPARING:
        advantages = group_advantages(kind, group)
        assert math.fsum(advantages) == pytest.approx(0.0, abs=1e-4)
        by_reward = [advantage for _, advantage in sorted(zip(group, advantages, strict=True))]
        assert by_reward == sorted(advantages)


@given(rewards, st.floats(0.1, 10), st.floats(-5, 5))
def test_standardised_does_not_see_scale_and_shift(group: list[float], scale: float, shift: float) -> None:
    if max(group) - min(group) > 1e-3:
        moved = group_advantages("group_standardised", [reward * scale + shift for reward in group])
        assert moved == pytest.approx(group_advantages("group_standardised", group), abs=1e-6)


def test_unknown_name_is_an_error_that_suggests() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'group_centred'"):
        group_advantages("group_centered", [1.0])
