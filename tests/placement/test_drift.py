"""Drift: how far profiles are apart, and when that counts."""

import pytest

from plait.placement.drift import DriftSettings, DriftWatch, distance
from plait.placement.job import Role
from plait.placement.job_profile import JobProfile, Phase
from plait.types.errors import ConfigError


def profile(period_s: float = 100.0, start: float = 0.7, length: float = 0.25) -> JobProfile:
    train = Phase(Role.TRAIN, start * period_s, length * period_s)
    return JobProfile(period_s, (Phase(Role.ROLLOUT, 0.0, 0.6 * period_s), train))


def test_distance_is_the_largest_change_of_period_duty_or_phase() -> None:
    assert distance(profile(), profile()) == 0
    assert distance(profile(), profile(120)) == pytest.approx(0.2)
    assert distance(profile(), profile(start=0.65)) == pytest.approx(0.05)
    assert distance(profile(), profile(length=0.1)) == pytest.approx(0.15)
    assert distance(profile(start=0.02), profile(start=0.74)) == pytest.approx(0.28)


def test_drift_counts_when_it_is_confirmed_settled_and_due() -> None:
    watch = DriftWatch(profile(), 0.0, DriftSettings(threshold=0.1, confirmations=2, cooldown_s=100))
    assert not watch.observe(profile(150), 10)
    assert not watch.observe(profile(150), 20)
    assert watch.observe(profile(150), 100)
    watch.placed(profile(150), 100)
    assert not watch.observe(profile(150), 500)
    assert not watch.observe(profile(200), 510)
    assert watch.observe(profile(205), 520)


def test_profiles_that_never_agree_are_no_drift() -> None:
    watch = DriftWatch(profile(), 0.0, DriftSettings(threshold=0.1, confirmations=2, cooldown_s=0))
    assert not any(watch.observe(profile(150.0 + 50 * (step % 2)), step) for step in range(10))


def test_a_profile_that_cannot_be_is_refused() -> None:
    with pytest.raises(ConfigError, match="wraps"):
        profile(start=0.8)
    with pytest.raises(ConfigError, match="period_s"):
        JobProfile(0.0, ())
