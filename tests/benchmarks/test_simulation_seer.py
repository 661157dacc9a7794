"""The real benchmark of several engines, foreseen from what its model's calls take by themselves."""

import pytest

from benchmarks.simulation_scores import TOLERANCE
from benchmarks.simulation_seer import FIGURES, seer_rows, slower
from benchmarks.simulation_seer_profile import PROFILE
from plait.simulation.measured_costs import MeasuredCosts
from plait.simulation.profile import read_profile


def test_most_figures_are_foreseen() -> None:
    off = [abs(row["difference"]) for row in seer_rows(is_quick=True) if row["figure"] in FIGURES and not row["fitted"]]
    assert len(off) == 40
    assert sum(one <= TOLERANCE for one in off) >= 0.9 * len(off)


def test_a_slower_profile_is_that_in_all_that_rollouts_ask() -> None:
    profile = read_profile(PROFILE)
    usual, slow = MeasuredCosts(profile), MeasuredCosts(slower(profile, 1.5))
    assert slow.decode_step_s(20, 2000) == pytest.approx(1.5 * usual.decode_step_s(20, 2000), rel=1e-3)
    for name in ("prefill_s", "resume_s", "fetch_s"):
        assert getattr(slow, name)(60) == pytest.approx(1.5 * getattr(usual, name)(60), rel=1e-3)
