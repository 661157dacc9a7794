"""The profile is interpolated, corrected and never falls."""

from itertools import accumulate
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.drafting.target_time import FIRST_DRAFT, TargetTime

PROFILE = {(rows, width): 0.01 + 0.001 * rows * width for rows in (1, 4, 16) for width in (1, 3, 9)}


def test_a_linear_profile_is_met_everywhere_from_its_first_point_on() -> None:
    times = TargetTime(PROFILE)
    for rows, tokens in [(1, 1), (1, 5), (2, 2), (3, 9), (10, 25), (16, 144), (40, 80), (4, 100)]:
        assert times.seconds(rows, tokens) == pytest.approx(0.01 + 0.001 * tokens)
    assert times.seconds(0, 0) == 0


def test_one_point_scales_with_the_work() -> None:
    times = TargetTime({(4, 1): 0.02})
    assert times.seconds(4, 4) == 0.02
    assert times.seconds(8, 8) == times.seconds(4, 8) == pytest.approx(0.04)


def test_steps_correct_the_level_and_the_shape() -> None:
    times = TargetTime(PROFILE)
    for _ in range(200):
        times.observe(4, 4, 2 * 0.014)
        times.observe(4, 12, 3 * 0.022)
    assert times.seconds(4, 4) == pytest.approx(2 * 0.014, rel=0.05)
    assert times.seconds(4, 12) == pytest.approx(3 * 0.022, rel=0.05)
    assert times.seconds(16, 16) == pytest.approx(2 * 0.026, rel=0.05)


def test_what_drafts_take_is_not_taken_for_a_slower_machine() -> None:
    times = TargetTime(PROFILE)
    plain_s = times.seconds(4, 4)
    for _ in range(100):
        times.observe(4, 12, 2 * 0.022)
    assert times.level == 1.0
    assert times.seconds(4, 4) == plain_s
    assert times.seconds(4, 12) > 1.4 * 0.022


def test_the_first_draft_token_costs_what_was_measured() -> None:
    """As where a processor rounds up: one token more costs as much as eight."""
    times = TargetTime(PROFILE | {(1, FIRST_DRAFT): 0.012, (4, FIRST_DRAFT): 0.020, (16, FIRST_DRAFT): 0.034})
    assert times.seconds(4, 4) == pytest.approx(0.014)
    assert times.seconds(4, 5) == times.seconds(4, 10) == pytest.approx(0.020)
    assert times.seconds(10, 11) == pytest.approx(0.027)
    assert times.seconds(4, 12) == pytest.approx(0.022)
    assert times.curve(4, 8) == pytest.approx([0.014, *[0.020] * 6, 0.021, 0.022])


def test_tokens_are_padded_as_the_model_pads_them() -> None:
    padded = {(rows, width): 0.01 + 0.001 * 4 * ceil(rows * width / 4) for rows, width in PROFILE}
    times = TargetTime(padded, token_step=4)
    for rows, tokens in [(1, 2), (1, 4), (2, 3), (3, 4)]:
        assert times.seconds(rows, tokens) == times.seconds(rows, 4) == pytest.approx(0.014, rel=0.15)
    for rows, tokens, all_tokens in [(1, 5, 8), (4, 5, 8), (4, 9, 12), (6, 8, 8), (6, 9, 12), (10, 21, 24)]:
        assert times.seconds(rows, tokens) == times.seconds(rows, all_tokens) == pytest.approx(0.01 + 0.001 * all_tokens)
    assert times.seconds(5, 5) == times.seconds(8, 8) == pytest.approx(0.018)
    assert times.curve(6, 7) == pytest.approx([times.seconds(6, 6 + extra) for extra in range(8)])
    assert times.curve(6, 3)[2] == times.curve(6, 3)[0], "the seventh and eighth token are free"


def test_a_few_steps_tell_how_fast_the_machine_is() -> None:
    times = TargetTime(PROFILE)
    for _ in range(4):
        times.observe(4, 4, 1.25 * 0.014)
    assert times.seconds(4, 4) == pytest.approx(1.25 * 0.014, rel=0.05)


def test_rows_with_adapters_do_not_make_others_slower() -> None:
    times = TargetTime(PROFILE)
    for _ in range(100):
        times.observe(16, 16, 1.5 * 0.026)
        times.observe(1, 1, 0.011)
    assert times.seconds(16, 16) == pytest.approx(1.5 * 0.026, rel=0.03)
    assert times.seconds(12, 20) == pytest.approx(1.5 * 0.030, rel=0.03)
    assert times.seconds(1, 1) == pytest.approx(0.011, rel=0.03)


def test_drafts_of_a_few_rows_are_corrected_as_those_of_all() -> None:
    times = TargetTime(PROFILE)
    for _ in range(300):
        times.observe(16, 16, 0.026)
        times.observe(16, 17, 0.054)
    assert times.seconds(16, 17) == pytest.approx(0.054, rel=0.1)
    assert times.seconds(16, 16) == pytest.approx(0.026, rel=0.1)


def test_one_stalled_step_changes_little() -> None:
    times = TargetTime(PROFILE)
    times.observe(4, 4, 60.0)
    assert times.seconds(4, 4) < 1.2 * 0.014


@given(
    st.lists(st.floats(0.001, 1.0), min_size=9, max_size=9),
    st.lists(st.tuples(st.integers(1, 20), st.integers(0, 8), st.floats(0.001, 1.0)), max_size=20),
)
def test_drafts_never_take_less_time_than_none(seconds: list[float], steps: list[tuple[int, int, float]]) -> None:
    times = TargetTime(dict(zip(PROFILE, seconds, strict=True)))
    for rows, extra, observed in steps:
        times.observe(rows, rows + extra, observed)
    for rows in (1, 3, 16, 40):
        single = [times.seconds(rows, rows + extra) for extra in range(20)]
        assert min(single) == single[0] > 0
        assert times.curve(rows, 19) == pytest.approx(list(accumulate(single, max)))


@pytest.mark.parametrize("profile", [{}, {(1, 2): 1.0}, {(1, 1): 1.0, (2, 2): 1.0}, {(1, 1): 0.0}])
def test_a_profile_with_holes_is_refused(profile: dict[tuple[int, int], float]) -> None:
    with pytest.raises(ValueError, match="one token per row"):
        TargetTime(profile)
