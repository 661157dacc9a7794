"""What the policies decide, event by event."""

from typing import TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plait.placement.corun import slowdowns
from plait.placement.decision import Action, Decision
from plait.placement.demand_trace import DemandTrace, FunctionRecord
from plait.placement.drift import DriftSettings
from plait.placement.fitting import running
from plait.placement.job import Job, Pool, Role
from plait.placement.job_profile import JobProfile, Phase
from plait.placement.placer import Placer
from plait.placement.policies import Isolated, Pack, Spread, SpreadBackfill
from plait.placement.resource_view import Bytes, Node
from plait.types.errors import ConfigError, StateError

POLICIES = (Isolated, Pack, Spread, SpreadBackfill)
MEMORY = Bytes(device=80, host=1000, disk=0)


def nodes(count: int, devices: int = 8, memory: Bytes = MEMORY) -> list[Node]:
    return [Node(f"n{number}", f"g{number // 4}", devices, memory) for number in range(count)]


def job(name: str, kind: str = "k", devices: int = 8, expected_s: float = 10_000.0, num_bytes: int = 10, slo: float = 1.2) -> Job:
    pools = (Pool((Role.ROLLOUT,), devices, num_bytes, 1.0), Pool((Role.TRAIN,), devices, num_bytes, 1.0))
    return Job(name, kind, pools, slo, expected_s)


def profile(period_s: float = 100.0, train: float = 0.25) -> JobProfile:
    start_s = (1 - train) * period_s
    return JobProfile(period_s, (Phase(Role.ROLLOUT, 0, start_s), Phase(Role.TRAIN, start_s, train * period_s)))


AnyPlacer = TypeVar("AnyPlacer", bound=Placer)


def warm(policy: type[AnyPlacer], count: int, kinds: str = "k") -> AnyPlacer:
    placer = policy(nodes(count))
    placer.profiles |= {kind: profile() for kind in kinds}
    return placer


def groups_of(decision: Decision) -> list[int]:
    return [pool.group_id for pool in decision.pools]


def test_a_new_kind_gets_devices_of_its_own_until_its_trace_tells_its_period() -> None:
    placer = Pack(nodes(4))
    first = placer.submit(job("a"), 0)
    second = placer.submit(job("b"), 0)
    assert first.action == second.action == Action.PLACED
    assert not any(pool.is_shared for pool in first.pools)
    assert placer.submit(job("c"), 10).action == Action.QUEUED
    trace = DemandTrace()
    for step in range(3):
        trace.record(FunctionRecord(100 * step, 100 * step + 75, "sample", Role.ROLLOUT))
        trace.record(FunctionRecord(100 * step + 75, 100 * step + 100, "forward_backward", Role.TRAIN))
    assert placer.trace_updated("a", trace, 300) == []
    for step in range(3, 8):
        trace.record(FunctionRecord(100 * step, 100 * step + 75, "sample", Role.ROLLOUT))
        trace.record(FunctionRecord(100 * step + 75, 100 * step + 100, "forward_backward", Role.TRAIN))
    assert placer.trace_updated("a", trace, 800) == []
    assert placer.profiles["k"].period_s == pytest.approx(100, rel=0.01)
    assert placer.groups.jobs["a"].is_shared


def test_a_known_kind_is_shifted_into_the_idle_window_of_a_group() -> None:
    placer = warm(Pack, 4)
    placer.submit(job("a"), 0)
    second = placer.submit(job("b"), 0)
    a, b = placer.groups.jobs["a"], placer.groups.jobs["b"]
    assert a.groups[1] == b.groups[1]
    assert a.groups[0] != b.groups[0]
    assert 25 <= second.shift_s <= 75
    assert second.slowdowns["a"] <= 1.2
    assert placer.groups.view.num_free == 8


def test_spread_takes_free_devices_first_and_shares_when_there_are_none() -> None:
    placer = warm(Spread, 5)
    apart = [placer.submit(job(name), 0) for name in "ab"]
    assert len({group for decision in apart for group in groups_of(decision)}) == 4
    third = placer.submit(job("c"), 0)
    assert third.action == Action.PLACED
    assert set(groups_of(third)) & {group for decision in apart for group in groups_of(decision)}


def test_spread_shares_while_others_wait_and_leaves_them_the_free_devices() -> None:
    placer = warm(Spread, 5)
    placer.submit(job("a"), 0)
    assert placer.submit(job("wide", "new", devices=16), 0).action == Action.QUEUED
    for name in "bc":
        assert placer.submit(job(name), 0).action == Action.QUEUED
    started = placer.job_ended("wide", 0)
    assert [(decision.job_id, decision.action) for decision in started] == [("b", Action.PLACED), ("c", Action.PLACED)]
    a, b, c = (placer.groups.jobs[name].groups for name in "abc")
    assert b[1] == a[1]
    assert not set(c) & {*a, *b}


def test_isolated_never_shares() -> None:
    placer = warm(Isolated, 4)
    assert [placer.submit(job(name), 0).action for name in "abc"] == [Action.PLACED, Action.PLACED, Action.QUEUED]
    started = placer.job_ended("a", 50)
    assert [(decision.job_id, decision.action) for decision in started] == [("c", Action.PLACED)]
    assert not started[0].pools[0].is_shared


def test_one_pool_of_both_roles_is_one_group() -> None:
    placer = Pack(nodes(1))
    both = Job("a", "k", (Pool((Role.ROLLOUT, Role.TRAIN), 8),))
    assert len(placer.submit(both, 0).pools) == 1


def test_backfill_starts_who_does_not_delay_the_head() -> None:
    placer = warm(SpreadBackfill, 4, "")
    placer.submit(job("a", expected_s=1000), 0)
    assert placer.submit(job("head", devices=16, expected_s=1000), 0).estimated_start_s == 1000
    assert placer.submit(job("long", expected_s=2000), 0).action == Action.QUEUED
    assert placer.submit(job("short", expected_s=900), 0).action == Action.PLACED
    assert placer.estimated_start_s(0) == 1000
    placer.job_ended("short", 900)
    started = placer.job_ended("a", 1000)
    assert started[0].job_id == "head"


def test_first_come_first_served_lets_nobody_pass() -> None:
    placer = warm(Spread, 4, "")
    placer.submit(job("a"), 0)
    placer.submit(job("head", devices=16), 0)
    assert placer.submit(job("small", devices=1), 0).action == Action.QUEUED


def test_a_job_that_never_fits_is_rejected_and_nonsense_is_an_error() -> None:
    placer = Pack(nodes(2))
    rejected = placer.submit(job("a", devices=16), 0)
    assert (rejected.action, placer.queue) == (Action.REJECTED, [])
    assert "16 devices" in rejected.reason
    assert placer.submit(job("b", num_bytes=81), 0).action == Action.REJECTED
    placer.submit(job("c"), 0)
    with pytest.raises(StateError, match="here already"):
        placer.submit(job("c"), 0)
    with pytest.raises(StateError, match="not here"):
        placer.job_ended("x", 0)
    with pytest.raises(StateError, match="not placed"):
        placer.profile_updated("x", profile(), 0, 0)
    with pytest.raises(ConfigError, match="roles"):
        Job("d", "k", ())


def test_nodes_leave_and_join() -> None:
    placer = warm(Spread, 4, "")
    placer.submit(job("a"), 0)
    placer.submit(job("b"), 0)
    lost = placer.groups.groups[placer.groups.jobs["a"].groups[0]].slices[0].node_id
    assert [(decision.job_id, decision.action) for decision in placer.node_left(lost, 100)] == [("a", Action.QUEUED)]
    assert placer.queue[0].expected_s == 9900
    assert [decision.job_id for decision in placer.node_joined(Node("new", "g9", 8, MEMORY), 200)] == ["a"]
    assert placer.queue == []


def test_a_job_that_no_longer_fits_since_a_node_left_blocks_nobody() -> None:
    placer = warm(Spread, 4, "")
    placer.submit(job("a"), 0)
    placer.submit(job("large", devices=16), 0)
    placer.node_left("n3", 1)
    started = placer.submit(job("small", devices=4), 2)
    assert placer.queue[0].job_id == "large"
    assert started.action == Action.QUEUED or started.action == Action.PLACED
    assert "small" in placer.groups.jobs or placer.job_ended("a", 3)


def test_without_host_memory_a_job_keeps_its_devices_alone() -> None:
    placer = Pack(nodes(4, memory=Bytes(80, 100, 0)))
    placer.profiles["k"] = profile()
    first = placer.submit(job("a", num_bytes=13), 0)
    assert first.action == Action.PLACED
    assert not first.pools[0].is_shared
    assert not set(groups_of(first)) & set(groups_of(placer.submit(job("b", num_bytes=13), 0)))


def drifted(placer: Placer, name: str, new: JobProfile, times_s: list[float]) -> list[Decision]:
    return [decision for now_s in times_s for decision in placer.profile_updated(name, new, now_s, 0.0)]


def test_a_job_that_drifts_is_placed_anew_after_some_confirmations_and_noise_is_not_drift() -> None:
    placer = warm(Pack, 6)
    placer.submit(job("a"), 0)
    placer.submit(job("b"), 0)
    assert drifted(placer, "b", profile(110.0), [1000, 1100, 1200, 1300]) == []
    assert drifted(placer, "b", profile(100.0, 0.9), [1400, 1500]) == []
    moved = placer.profile_updated("b", profile(100.0, 0.9), 1600, 0.0)
    assert [(decision.job_id, decision.action) for decision in moved] == [("b", Action.MOVED)]
    assert placer.groups.jobs["a"].groups[1] not in placer.groups.jobs["b"].groups
    assert drifted(placer, "b", profile(100.0, 0.9), [1700, 1800, 1900]) == []


def test_a_job_that_flaps_is_not_moved() -> None:
    placer = Pack(nodes(6), DriftSettings(cooldown_s=0))
    placer.profiles["k"] = profile()
    placer.submit(job("a"), 0)
    placer.submit(job("b"), 0)
    for step in range(20):
        assert placer.profile_updated("b", profile(100.0, 0.9 if step % 2 else 0.25), 100.0 * step, 0.0) == []


def test_a_job_that_drifted_and_fits_nowhere_waits_at_the_head() -> None:
    placer = warm(Pack, 3)
    placer.submit(job("a"), 0)
    placer.submit(job("b"), 0)
    placer.submit(job("c", "new"), 0)
    busy = JobProfile(100, (Phase(Role.ROLLOUT, 0, 90), Phase(Role.TRAIN, 0, 90)))
    decisions = drifted(placer, "b", busy, [1000, 1100, 1200])
    assert [(decision.job_id, decision.action) for decision in decisions] == [("b", Action.QUEUED)]
    assert [waiting.job_id for waiting in placer.queue] == ["b", "c"]
    assert placer.groups.jobs["a"].slowdown == 1


def test_groups_of_one_member_are_emptied_for_those_who_wait() -> None:
    placer = warm(Spread, 4)
    placer.submit(job("a"), 0)
    placer.submit(job("b"), 0)
    assert placer.submit(job("wide", "new", devices=4), 700).action == Action.QUEUED
    decisions = placer.profile_updated("a", profile(), 800, 0.0)
    assert decisions == []
    decisions = placer.node_joined(Node("tiny", "g9", 1, MEMORY), 900)
    assert [decision.action for decision in decisions] == [Action.MOVED, Action.PLACED]
    assert decisions[1].job_id == "wide"


events = st.lists(
    st.tuples(
        st.sampled_from(["submit", "submit", "submit", "end", "profile", "leave", "join"]), st.integers(0, 99), st.integers(1, 600)
    ),
    max_size=40,
)


@settings(max_examples=25)
@given(st.sampled_from(POLICIES), events)
def test_whatever_happens_books_balance_and_bounds_hold(policy: type[Placer], steps: list[tuple[str, int, int]]) -> None:
    placer = policy(nodes(6))
    now_s = 0.0
    for number, (kind, choice, wait_s) in enumerate(steps):
        now_s += wait_s
        placed, present = sorted(placer.groups.jobs), sorted(node.node_id for node in placer.groups.view.nodes())
        if kind == "submit":
            placer.submit(job(f"j{number}", f"k{choice % 3}", (1, 4, 8, 16)[choice % 4], 100.0 * (1 + choice)), now_s)
        elif kind == "end" and placed:
            placer.job_ended(placed[choice % len(placed)], now_s)
        elif kind == "profile" and placed:
            placer.profile_updated(
                placed[choice % len(placed)], profile(60.0 + 20 * (choice % 4), 0.15 + 0.05 * (choice % 3)), now_s, now_s
            )
        elif kind == "leave" and len(present) > 3:
            placer.node_left(present[choice % len(present)], now_s)
        elif kind == "join":
            placer.node_joined(Node(f"m{number}", "g9", 8, MEMORY), now_s)
        check(placer)
    for name in [*(waiting.job_id for waiting in placer.queue), *placer.groups.jobs]:
        placer.job_ended(name, now_s)
    for name in list(placer.groups.jobs):
        placer.job_ended(name, now_s)
    assert placer.groups.groups == {}
    assert placer.groups.view.num_free == sum(node.num_devices for node in placer.groups.view.nodes())


def check(placer: Placer) -> None:
    book = placer.groups
    used: dict[tuple[str, int], int] = {}
    for group in book.groups.values():
        assert group.members
        assert group.load < 1 or len(group.members) == 1
        for part in group.slices:
            for device in part.devices:
                assert used.setdefault((part.node_id, device), group.group_id) == group.group_id
                assert book.reservations.share(part.node_id, device, 0, 1) <= 1 + 1e-9
    assert len(used) + book.view.num_free == sum(node.num_devices for node in book.view.nodes())
    assert {name for name, placed in book.jobs.items() for _ in placed.groups} == {
        m for g in book.groups.values() for m in g.members
    }
    assert not {waiting.job_id for waiting in placer.queue} & book.jobs.keys()
    for placed in book.jobs.values():
        assert placed.is_shared or all(len(book.groups[group].members) == 1 for group in placed.groups)
        for pool, at in zip(placed.job.pools, placed.groups, strict=True):
            assert pool.num_devices <= book.groups[at].num_devices


@settings(max_examples=15)
@given(st.sampled_from([Pack, Spread, SpreadBackfill]), st.lists(st.integers(0, 99), min_size=2, max_size=14))
def test_all_who_were_admitted_keep_their_bound(policy: type[Placer], choices: list[int]) -> None:
    placer = policy(nodes(6))
    placer.profiles = {f"k{kind}": profile(80.0 + 25 * kind, 0.15 + 0.05 * kind) for kind in range(4)}
    for number, choice in enumerate(sorted(choices)):
        placer.submit(job(f"j{number}", f"k{choice % 4}", (4, 8)[choice % 2]), float(choice))
    now_s = 100.0
    executed = slowdowns([running(placed, now_s) for placed in placer.groups.jobs.values()], 200)
    assert max(executed.values(), default=1.0) <= 1.2


@settings(max_examples=20)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(50, 5000)), min_size=3, max_size=20), st.booleans())
def test_backfill_never_puts_off_the_estimated_start_of_the_head(jobs: list[tuple[int, int]], is_warm: bool) -> None:
    placer = SpreadBackfill(nodes(6))
    if is_warm:
        placer.profiles = {f"k{kind}": profile(80.0 + 25 * kind, 0.15 + 0.05 * kind) for kind in range(4)}
    for number, (kind, expected_s) in enumerate(jobs):
        before, head = placer.estimated_start_s(float(number)), placer.queue[:1]
        placer.submit(job(f"j{number}", f"k{kind}", (2, 4, 8, 16)[kind], float(expected_s)), float(number))
        after = placer.estimated_start_s(float(number))
        if before is not None and after is not None and placer.queue[:1] == head:
            assert after <= before + 1e-6
