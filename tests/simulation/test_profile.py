"""Fits of measured costs: exact where the truth is of their kind, monotone whatever was measured, errors told."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plait.simulation.measured_costs import MeasuredCosts, profile_costs
from plait.simulation.profile import Fit, Point, Profile, decode_terms, errors_of, held_out_error, read_profile, token_terms
from plait.types.errors import ConfigError

ROWS, CONTEXTS = (1, 2, 4, 8, 16), (32, 128, 512)


def step_s(rows: int, context: int) -> float:
    return 0.002 + 0.0004 * min(rows, 4) + 0.0001 * rows + 1e-6 * context


def profile(**changes: object) -> Profile:
    decode = tuple(Point(rows * context, step_s(rows, rows * context), rows) for rows in ROWS for context in CONTEXTS)
    tokens = tuple(Point(num, 0.001 + 2e-5 * num) for num in (16, 32, 64, 128, 256, 512))
    values = {"model": "m", "machine": "here", "decode": decode, "prefill": tokens, "train": tokens}
    return Profile(**(values | changes))  # type: ignore[arg-type]


def test_a_fit_finds_what_is_of_its_kind_also_where_it_was_not_measured() -> None:
    costs = MeasuredCosts(profile())
    assert costs.decode_step_s(12, 3000) == pytest.approx(step_s(12, 3000), rel=0.01)
    assert costs.decode_step_s(2, 100) == pytest.approx(step_s(2, 100), rel=0.01)
    assert costs.prefill_s(400) == pytest.approx(0.001 + 2e-5 * 400, rel=0.01)
    assert all(error.worst < 0.02 and error.num_points for error in errors_of(profile()).values())


def test_each_token_more_of_a_row_takes_what_was_measured() -> None:
    costs = MeasuredCosts(profile(verify_token_s=0.01))
    assert costs.verify_step_s(4, 300, 3.0) == pytest.approx(costs.decode_step_s(4, 300) + 0.01 * 4 * 2)
    assert costs.verify_step_s(0, 0, 3.0) == 0.0


def test_the_error_is_of_points_that_were_not_fitted() -> None:
    points = [Point(num, 1e-3 * num * (5.0 if num == 48 else 1.0)) for num in (16, 32, 48, 64, 80, 96, 112, 128)]
    assert held_out_error(points, token_terms).worst > 0.5


@settings(deadline=None, max_examples=25)
@given(st.lists(st.floats(1e-4, 1.0), min_size=15, max_size=15), st.integers(1, 40), st.integers(0, 20_000))
def test_costs_never_fall_with_more_work_however_noisy_the_measurements(seconds: list[float], rows: int, context: int) -> None:
    works = [(rows, rows * context) for rows in ROWS for context in CONTEXTS]
    fit = Fit([Point(tokens, s, rows) for (rows, tokens), s in zip(works, seconds, strict=True)], decode_terms)
    here_s = fit.seconds(Point(context, 0.0, rows))
    assert here_s <= fit.seconds(Point(context, 0.0, rows + 1)) + 1e-12
    assert here_s <= fit.seconds(Point(context + 100, 0.0, rows)) + 1e-12


def test_a_profile_is_read_as_it_was_written(tmp_path: Path) -> None:
    profile().write(tmp_path / "p.json")
    assert read_profile(tmp_path / "p.json") == profile()
    with pytest.raises(ConfigError, match="Write a profile with `plait profile`"):
        read_profile(tmp_path / "none.json")
    with pytest.raises(ConfigError, match="no points of train"):
        MeasuredCosts(profile(train=()))


def test_a_call_that_took_no_time_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    path.write_text('{"model": "m", "machine": "m", "decode": [{"num_tokens": 1, "seconds": 0.0}], "prefill": []}')
    with pytest.raises(ConfigError, match=r"> 0.0 - at `\$.decode\[0\].seconds`"):
        read_profile(path)


def test_a_file_that_was_measured_again_counts_as_it_is_now(tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    profile().write(path)
    before = profile_costs(str(path))
    assert profile_costs(str(path)) is before, "one fit for all systems of a scenario"
    profile(optimizer_s=0.5).write(path)
    assert profile_costs(str(path)).optimizer_s() == 0.5
