"""The co-run executed, against an obvious replay that looks at everything at every step."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plait.placement.admission import judge, load_fits
from plait.placement.corun import Member, chained, slowdowns
from tests.placement.replay import replay


def shared_training(periods: list[float], duty: list[float], starts: list[float], switch_s: float = 0.0) -> list[Member]:
    """Rollouts on groups of their own, all training on group 0."""
    return [
        chained(f"j{k}", p, [(k + 1, 0, p * (1 - d), 0), (0, p * (1 - d), p * d, switch_s)], start)
        for k, (p, d, start) in enumerate(zip(periods, duty, starts, strict=True))
    ]


def test_a_job_alone_is_as_fast_as_alone() -> None:
    member = chained("a", 100, [(0, 0, 60, 5), (1, 65, 30, 5), (1, 10, 20, 5)])
    assert slowdowns([member]) == {"a": 1.0}
    assert slowdowns([Member("idle", 10.0, ())]) == {"idle": 1.0}


def test_anti_correlated_jobs_do_not_slow_each_other() -> None:
    assert slowdowns(shared_training([100, 100], [0.3, 0.3], [0, 50])) == {"j0": 1.0, "j1": 1.0}


def test_a_saturated_group_is_shared_by_turns() -> None:
    """Three times 50 s on one group: a period takes 150 s, with switches of 2 s: 156."""
    for slowdown in slowdowns(shared_training([100] * 3, [0.5] * 3, [0, 0, 0], 2.0), 200).values():
        assert slowdown == pytest.approx(1.56, rel=0.02)


def test_training_with_slack_delays_nothing() -> None:
    """Asynchronous: training beside the next rollout."""
    members = [chained(f"j{k}", 100, [(k + 1, 0, 95, 0), (0, 0, 20, 2)]) for k in range(4)]
    assert set(slowdowns(members).values()) == {1.0}


def random_members(seed: int) -> list[Member]:
    rng = random.Random(seed)
    members = []
    for number in range(rng.choice([2, 3, 4])):
        period_s = 120 * 2.718 ** rng.gauss(0, 0.3)
        train_s = period_s * rng.uniform(0.1, 0.3)
        rollout_s = period_s * 0.95 if rng.random() < 0.3 else period_s - train_s
        offset_s = 0.0 if rollout_s + train_s > period_s else rollout_s
        rollout_group = rng.choice([number + 1, number + 1, 0])
        phases = [(rollout_group, 0.0, rollout_s, 2.5), (0, offset_s, train_s, 2.5)]
        members.append(chained(f"j{number}", period_s, phases, rng.uniform(0, period_s)))
    return members


@settings(max_examples=25)
@given(st.integers(0, 2**20))
def test_the_event_loop_is_the_replay(seed: int) -> None:
    members = random_members(seed)
    expected = slowdowns(members, 8)
    for member in members:
        periods_s = replay(members, 8)[member.job_id]
        whole = sum(periods_s) / len(periods_s)
        later = sum(periods_s[4:]) / len(periods_s[4:])
        assert expected[member.job_id] == pytest.approx(max(1, whole / member.period_s, later / member.period_s), abs=1e-6)


@settings(max_examples=25)
@given(st.integers(0, 2**20), st.floats(1.05, 1.5))
def test_no_admitted_set_breaks_its_bound_when_it_is_executed(seed: int, slo: float) -> None:
    """Five times as long as the estimate looked ahead."""
    members = random_members(seed)
    verdict = judge(members, {member.job_id: slo for member in members})
    if verdict.is_admitted:
        executed = replay(members, 160)
        for member in members:
            periods_s = executed[member.job_id]
            assert sum(periods_s) / len(periods_s) <= slo * member.period_s
    else:
        assert "times as slow" in verdict.reason


def test_too_many_jobs_that_depend_on_each_other_are_refused() -> None:
    members = shared_training([100.0] * 11, [0.01] * 11, [0.0] * 11)
    assert "11 jobs" in judge(members, {member.job_id: 1.2 for member in members}).reason


def test_a_group_whose_load_reaches_its_cycle_takes_nobody() -> None:
    assert load_fits([0.3, 0.3, 0.3])
    assert not load_fits([0.5, 0.5])
