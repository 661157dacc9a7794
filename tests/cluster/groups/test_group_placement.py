"""At which group each job runs, by the placer that the simulator drives too."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plait.cluster.groups.group_placement import GroupPlacement
from plait.cluster.groups.placer_question import Answer
from plait.placement.drift import DriftSettings
from plait.placement.job import Role
from plait.placement.job_profile import JobProfile, Phase
from plait.placement.policies import Pack

IMPATIENT = DriftSettings(confirmations=2, cooldown_s=0.0)


def profile(period_s: float, *busy: tuple[float, float]) -> JobProfile:
    return JobProfile(period_s, tuple(Phase(Role.ROLLOUT, offset, seconds) for offset, seconds in busy))


HALF, FULL = profile(10.0, (0.0, 4.0)), profile(10.0, (0.0, 9.9))


def placed(policy: str, *jobs: JobProfile, num_groups: int = 2, slo: float = 1.2) -> GroupPlacement:
    """All of them have arrived, and then told their profiles."""
    placement = GroupPlacement([f"g{n}" for n in range(num_groups)], 100, None, policy, IMPATIENT)
    for number in range(len(jobs)):
        placement.arrive(f"j{number}", 10, slo)
    for number, one in enumerate(jobs):
        tell(placement, f"j{number}", one, now_s=number)
    return placement


def tell(placement: GroupPlacement, job: str, told: JobProfile, now_s: float = 0.0) -> None:
    placement.profiled(job, told, now_s, num_bytes=10, switch_s=0.0, now_s=now_s)
    placement.settle()


def where(placement: GroupPlacement) -> list[str]:
    return [here.group for here in placement.jobs.values()]


def test_new_jobs_start_at_the_group_with_most_room() -> None:
    placement = GroupPlacement(["g0", "g1", "g2"], 100)
    assert [placement.arrive(f"j{n}", size) for n, size in enumerate((60, 30, 20, 10, 70))] == ["g0", "g1", "g2", "g2", "g1"]
    assert placement.arrive("j5", 40) == "g2", "g1 and g0 would hold more than fits on their devices"


APART = ["g0", "g1"]


@pytest.mark.parametrize(
    ("policy", "groups"), [("pack", ["g0", "g0"]), ("spread", APART), ("spread_backfill", APART), ("isolated", APART)]
)
def test_profiles_are_placed_by_the_policy(policy: str, groups: list[str]) -> None:
    placement = placed(policy, HALF, HALF)
    assert where(placement) == groups
    assert all(here.is_placed for here in placement.jobs.values())


def test_nobody_moves_to_a_group_that_is_no_better_than_its_own() -> None:
    """The placer's free nodes are alike; the one chosen is where the job is."""
    placement = GroupPlacement(["g0", "g1"], 100)
    assert [placement.arrive(job, 10) for job in ("a", "b")] == ["g0", "g1"]
    tell(placement, "b", HALF)
    tell(placement, "a", HALF)
    assert where(placement) == ["g0", "g1"]


def test_jobs_that_would_be_too_slow_together_share_no_group() -> None:
    placement = placed("pack", FULL, FULL)
    assert where(placement) == ["g0", "g1"]
    assert all(here.slowdown <= 1.2 for here in placement.jobs.values())


def test_a_bound_that_allows_it_lets_them_share() -> None:
    other = profile(7.0, (0.0, 3.7))
    assert where(placed("pack", HALF, other, slo=1.2)) == ["g0", "g1"]
    assert where(placed("pack", HALF, other, slo=2.0)) == ["g0", "g0"]


def test_who_is_admitted_nowhere_stays_and_is_tried_again() -> None:
    placement = placed("spread", FULL, FULL, FULL)
    third = placement.jobs["j2"]
    assert (third.group, third.is_placed) == ("g0", False)
    placement.leave("j1", 20.0)
    tell(placement, "j2", FULL, 21.0)
    assert (third.group, third.is_placed) == ("g1", True)


def test_a_job_whose_trace_drifts_is_placed_anew() -> None:
    placement = placed("pack", HALF, HALF)
    for now_s in (100.0, 110.0, 120.0):
        tell(placement, "j1", FULL, now_s)
    assert where(placement) == ["g0", "g1"]
    tell(placement, "j0", HALF, 130.0)
    assert where(placement) == ["g0", "g1"]


def test_a_job_that_could_not_be_moved_is_the_placers_no_more() -> None:
    placement = placed("pack", HALF, HALF)
    placement.stay("j1", "g1", 5.0)
    placement.settle()
    assert where(placement) == ["g0", "g1"]
    assert list(placement.placer.groups.jobs) == ["j0"]


STEPS = st.lists(
    st.tuples(st.sampled_from(["arrive", "leave", "half", "full", "stay", "begin", "end"]), st.sampled_from("abc")), max_size=25
)


@settings(max_examples=60, deadline=None)
@given(STEPS)
def test_answers_may_come_at_any_time(steps: list[tuple[str, str]]) -> None:
    """Things happen between question and answer. In the end both sides hold the same jobs, those on one node in one group."""
    placement = GroupPlacement(["g0", "g1", "g2"], 100, None, "pack", IMPATIENT)
    answer: Answer | None = None
    for now_s, (step, job) in enumerate([*steps, ("end", "")]):
        if step == "end":
            if answer is not None:
                placement.take(answer)
            answer = None
        elif step == "begin":
            if answer is None and (question := placement.next_question()) is not None:
                answer = question()
        elif step == "arrive":
            if job not in placement.jobs:
                placement.arrive(job, 10)
        elif step == "leave":
            placement.leave(job, now_s)
        elif job in placement.jobs and step == "stay":
            placement.stay(job, placement.jobs[job].group, now_s)
        elif job in placement.jobs:
            placement.profiled(job, HALF if step == "half" else FULL, now_s, 10, 0.0, now_s)
    placement.settle()
    placed = {job: here.group for job, here in placement.jobs.items() if here.is_placed}
    nodes = {job: _node_of(placement, job) for job in placed if job in placement.placer.groups.jobs}
    assert placed.keys() == nodes.keys() == placement.placer.groups.jobs.keys()
    assert len(set(zip(placed.values(), nodes.values(), strict=True))) <= min(len(set(placed.values())), len(set(nodes.values())))


def _node_of(placement: GroupPlacement, job: str) -> str:
    groups = placement.placer.groups
    return groups.groups[next(iter(groups.jobs[job].groups))].slices[0].node_id


def test_the_placer_is_the_one_that_the_simulator_drives() -> None:
    assert isinstance(GroupPlacement(["g0"], policy="pack").placer, Pack)


def test_a_job_that_comes_to_need_its_group_all_the_time_keeps_it() -> None:
    """The placer takes it away and, since the group is free then, places it there again."""
    placement = placed("spread", HALF, HALF)
    always = profile(10.0, (0.0, 10.0))
    for now_s in range(10, 16):
        tell(placement, "j0", always, now_s=now_s)
    assert where(placement) == APART
    assert placement.jobs["j0"].is_placed
    assert set(placement.placer.groups.jobs) == {"j0", "j1"}
    tell(placement, "j0", HALF, now_s=20)
    placement.leave("j0", 21)
    placement.settle()
    assert set(placement.placer.groups.jobs) == {"j1"}
