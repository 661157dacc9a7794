"""Co-runs as they are executed against the slow way, to the last bit; and what is known of jobs alike against executing it anew."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plait.placement import convoys
from plait.placement.admission import judge
from plait.placement.convoys import Convoys
from plait.placement.corun import CoRun, Member, chained, slowdowns
from plait.scheduling.orders import ORDERS, Hrrs
from tests.placement.slow_corun import SlowCoRun

PERIODS_S = (100.0, 100.0, 150.0, 260.0)


def members_of(seed: int, has_ties: bool) -> list[Member]:
    """Of few kinds, so that some are alike. With ties they start together, and many moments are the same to the last bit."""
    rng = random.Random(seed)
    found = []
    for number in range(rng.choice([1, 2, 3, 4])):
        period_s, duty = rng.choice(PERIODS_S), rng.choice([0.2, 0.25, 0.4])
        offset_s = rng.choice([0.0, (1 - duty) * period_s, 0.5 * (1 - duty) * period_s])
        rollout_s = (1 - duty) * period_s if has_ties else period_s * rng.uniform(0.3, 1 - duty)
        phases = [(rng.choice([number + 1, 1, 0]), 0.0, rollout_s, 2.0), (0, offset_s, duty * period_s, rng.choice([0.0, 2.0]))]
        start_s = 0.0 if has_ties else rng.uniform(0, period_s)
        found.append(chained(f"j{number}", period_s, phases, start_s))
    return found


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**20), st.booleans(), st.sampled_from(sorted(ORDERS)))
def test_a_co_run_is_the_slow_one_to_the_last_bit(seed: int, has_ties: bool, order: str) -> None:
    members = members_of(seed, has_ties)
    fast, slow = CoRun(members, ORDERS[order]), SlowCoRun(members, ORDERS[order])
    for num_periods in (3, 12):
        fast.until(num_periods)
        slow.until(num_periods)
        assert (fast.periods, fast.ended_s, fast._ends_s) == (slow.periods, slow.ended_s, slow._ends_s)
        assert (fast._num_events, fast._now_s) == (slow._num_events, slow._now_s)


@settings(max_examples=4, deadline=None)
@given(st.lists(st.integers(0, 60), min_size=2, max_size=6), st.sampled_from([1.05, 1.3]))
def test_what_is_known_of_jobs_alike_changes_no_verdict(seeds: list[int], slo: float) -> None:
    known = Convoys(Hrrs)
    for seed in [*seeds, *seeds]:
        members = members_of(seed, False)
        slos = {member.job_id: slo for member in members}
        anew, found = judge(members, slos), judge(members, slos, Hrrs, known)
        assert found.is_admitted == anew.is_admitted
        assert not anew.is_admitted or found == anew


def test_jobs_alike_on_other_groups_at_other_times_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    known = Convoys(Hrrs)

    def two(group: int, start_s: float, switch_s: float = 2.0) -> list[Member]:
        phases = [[(group + k, 0.0, 70.0, 2.0), (group, 70.0, 30.0, switch_s)] for k in (1, 2)]
        return [chained(f"{group}-{k}", 100.0, phases[k], start_s * k) for k in (0, 1)]

    first = known.slowdowns(two(0, 0.0))
    assert first == slowdowns(two(0, 0.0))
    assert known.known(two(0, 0.0, 3.0)) is None
    assert known.known(two(0, 0.0)[:1]) is None
    monkeypatch.setattr(convoys, "slowdowns", None)
    assert list(known.slowdowns(two(7, 40.0)).items()) == [("7-0", first["0-0"]), ("7-1", first["0-1"])]
