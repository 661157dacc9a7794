"""Parts of placement by hand: what a group is worth, when who is expected to end, who depends on whom."""

from collections.abc import Sequence
from typing import Any

import pytest

from plait.placement import fitting, placements
from plait.placement.admission import MARGIN, Verdict, judge
from plait.placement.corun import Member, chained, slowdowns
from plait.placement.decision import Action
from plait.placement.demand_trace import DemandTrace, FunctionRecord
from plait.placement.fitting import could_join, running
from plait.placement.job import Job, Pool, Role
from plait.placement.job_profile import JobProfile, Phase, loads
from plait.placement.policies import Pack, Spread, SpreadBackfill
from plait.placement.resource_view import Bytes, Node, Slice
from plait.placement.worker_groups import PlacedJob, WorkerGroup
from tests.placement.test_placer import MEMORY, drifted, groups_of, job, nodes, profile, warm
from tests.placement.test_resource_view import cluster

POOL = Pool((Role.TRAIN,), 8, 10, 2.0)


def group(load: float = 0.2, devices: int = 8, device_bytes: int = 80) -> WorkerGroup:
    return WorkerGroup(1, (Slice("n", tuple(range(devices))),), devices, device_bytes, {"other": load})


def placed(expected_s: float = 1000.0, anchor_s: float = 30.0, slowdown: float = 1.25) -> PlacedJob:
    return PlacedJob(job("a", expected_s=expected_s), profile(), (1, 2), 1, anchor_s, 0.0, True, slowdown=slowdown)


def test_a_job_is_expected_to_end_by_what_is_left_at_the_pace_that_it_has() -> None:
    found = placed()
    assert found.end_s(500.0) == pytest.approx(500 + (1000 - 400) * 1.25)
    assert found.end_s(500.0, slowdown=2.0) == pytest.approx(500 + (1000 - 400) * 2)
    found.advance(500.0, 2.0)
    assert (found.done_s, found.slowdown) == (pytest.approx(400.0), 2.0)
    assert found.end_s(600.0) == pytest.approx(600 + (1000 - 450) * 2)
    assert found.end_s(9000.0) == 9000.0


def test_a_placed_job_takes_part_from_its_next_period_on() -> None:
    assert running(placed(anchor_s=30.0), 250.0).start_s == pytest.approx(80.0)
    assert running(placed(anchor_s=430.0), 250.0).start_s == pytest.approx(80.0)


def test_a_pool_joins_who_has_its_devices_its_memory_and_its_time() -> None:
    assert could_join(group(), POOL, 0.7)
    assert not could_join(group(), POOL, 0.8)
    assert not could_join(group(devices=4), POOL, 0.1)
    assert not could_join(group(devices=40), POOL, 0.1)
    assert not could_join(group(device_bytes=9), POOL, 0.1)


def test_a_load_is_the_busy_share_and_a_switch_before_each_phase() -> None:
    found = JobProfile(100.0, (Phase(Role.TRAIN, 0, 10), Phase(Role.ROLLOUT, 10, 40), Phase(Role.TRAIN, 60, 20)))
    assert loads(Job("a", "k", (POOL,)), found) == [pytest.approx(0.3 + 2 * 2.0 / 100)]


def test_what_policies_prefer() -> None:
    pack, spread = Pack(nodes(1)), Spread(nodes(1))
    wide = group(0.2, 16)
    assert pack.cost(group(0.6), POOL, 0.1, 0.0) < pack.cost(group(0.2), POOL, 0.1, 0.0) < pack.cost(wide, POOL, 0.1, 0.0)
    assert pack.cost(wide, POOL, 0.1, 0.0) < pack.cost(None, POOL, 0.1, 0.0)
    assert spread.cost(None, POOL, 0.1, 0.0) < spread.cost(group(0.2), POOL, 0.1, 0.1) < spread.cost(group(0.2), POOL, 0.1, 0.3)
    assert spread.cost(group(0.2), POOL, 0.1, 0.1) < spread.cost(group(0.6), POOL, 0.1, 0.1) < spread.cost(wide, POOL, 0.1, 0.1)


def test_who_shares_with_one_who_shares_with_another_depends_on_both() -> None:
    placer = Pack(nodes(6))
    for name in "abc":
        placer.submit(job(name), 0)
    book, chain = placer.groups, JobProfile(100.0, (Phase(Role.ROLLOUT, 0, 25), Phase(Role.TRAIN, 25, 25)))
    a, b, c = (book.jobs[name].groups for name in "abc")
    assert book.move("a", chain, a, 0.0)
    assert book.move("b", chain, (b[0], a[1]), 0.0)
    assert book.move("c", chain, (b[0], c[1]), 0.0)
    assert set(book.coupled([c[1]])) == {"a", "b", "c"}
    assert set(book.coupled([c[1]], ignored="b")) == {"c"}


def test_a_bound_is_kept_with_a_margin_and_also_if_all_start_at_once() -> None:
    members = [chained(f"j{k}", 100.0, [(k + 1, 0.0, 70.0, 0.0), (0, 70.0, 30.0, 0.0)], 40.0 * k) for k in range(2)]
    together = slowdowns([Member(m.job_id, m.period_s, m.steps, m.tail_s) for m in members])
    assert slowdowns(members) == {"j0": 1.0, "j1": 1.0}
    worst = max(together.values())
    assert worst > 1.005
    assert judge(members, dict.fromkeys(together, worst / (1 - MARGIN) + 1e-6)).is_admitted
    refused = judge(members, dict.fromkeys(together, worst / (1 - MARGIN) - 1e-3))
    assert not refused.is_admitted
    assert refused.slowdowns["j1"] == pytest.approx(max(1.0, together["j1"]))


def test_a_late_record_counts_from_where_all_is_known() -> None:
    trace = DemandTrace(max_intervals=8)
    for step in range(9):
        trace.record(FunctionRecord(10.0 * step, 10.0 * step + 5, "f", Role.TRAIN))
    known_s = trace.span()[0]
    assert known_s > 0
    trace.record(FunctionRecord(known_s - 30, known_s + 7, "f", Role.ROLLOUT))
    assert trace.intervals(Role.ROLLOUT) == [(known_s, known_s + 7)]
    trace.record(FunctionRecord(known_s - 30, known_s - 1, "f", Role.ROLLOUT))
    assert len(trace.intervals(Role.ROLLOUT)) == 1


def test_the_largest_request_is_served_first() -> None:
    found = cluster(1, 2).find_all([(3, Bytes()), (3, Bytes()), (5, Bytes()), (5, Bytes())])
    assert found is not None
    assert [sum(len(part.devices) for part in slices) for slices in found] == [3, 3, 5, 5]


# ---- decisions


def test_who_lost_a_node_waits_before_all_others() -> None:
    placer = warm(Spread, 4, "")
    for name in ("a", "b", "c"):
        placer.submit(job(name), 0)
    lost = placer.groups.groups[placer.groups.jobs["a"].groups[0]].slices[0].node_id
    placer.node_left(lost, 100)
    assert [waiting.job_id for waiting in placer.queue] == ["a", "c"]


def test_a_job_that_comes_to_need_more_stays_where_nobody_else_is() -> None:
    placer = warm(Pack, 6)
    placer.submit(job("a"), 0)
    before = placer.groups.jobs["a"].groups
    assert drifted(placer, "a", profile(100.0, 0.8), [1000, 1100, 1200]) == []
    assert placer.groups.jobs["a"].groups == before
    assert placer.profiles["k"].duty([Role.TRAIN]) == pytest.approx(0.8), "who comes next is like it"


def test_who_waits_starts_once_another_needs_less() -> None:
    placer = Pack(nodes(3))
    placer.profiles["k"] = profile(100.0, 0.5)
    first = placer.submit(job("a"), 0)
    assert placer.submit(job("b"), 0).action is Action.QUEUED
    decisions = drifted(placer, "a", profile(100.0, 0.25), [1000, 1100, 1200])
    assert [(decision.job_id, decision.action) for decision in decisions] == [("b", Action.PLACED)]
    assert groups_of(decisions[0])[1] == groups_of(first)[1]


def test_a_period_begins_when_the_job_starts() -> None:
    placer = warm(Pack, 4)
    placer.submit(job("a"), 0)
    second = placer.submit(job("b"), 10)
    assert second.shift_s > 0
    assert placer.groups.jobs["b"].anchor_s == 10 + second.shift_s


def test_a_shorter_job_of_a_kind_is_tried_where_a_longer_one_was_refused() -> None:
    placer = warm(SpreadBackfill, 4, "")
    placer.submit(job("a", expected_s=1000), 0)
    placer.submit(job("x", expected_s=5000), 0)
    for name, devices, expected_s in (("head", 16, 1000), ("long", 8, 2000), ("short", 8, 900)):
        assert placer.submit(job(name, "k", devices, expected_s), 0).action is Action.QUEUED
    assert [decision.job_id for decision in placer.job_ended("x", 0)] == ["short"]


def test_who_is_refused_at_the_cheapest_group_is_tried_at_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    placer = warm(Pack, 6)
    first = placer.submit(job("a"), 0)
    asked: list[int] = []

    def judged(members: Sequence[Member], *rest: Any) -> Verdict:
        asked.append(len(members))
        return Verdict(False) if len(asked) == 1 else judge(members, *rest)

    monkeypatch.setattr(fitting, "judge", judged)
    second = placer.submit(job("b"), 0)
    assert second.action is Action.PLACED
    assert len(asked) == 2 or not set(groups_of(first)) & set(groups_of(second))


def test_the_cheapest_groups_are_looked_at_however_many_there_are() -> None:
    placer = warm(Spread, 16)
    for name in "abcdefg":
        placer.submit(job(name), 0)
    fitter = placer._fitter
    fitter.cost = lambda group, *_: 1.0 if group is None else -float(group.group_id)
    found = fitter._options(POOL, profile(), 0.1)
    assert len(placer.groups.groups) == 14
    assert [group_id for _, group_id in found] == [14, 13, 12, 11, 10, 9, None]


def test_who_comes_to_break_its_bound_as_another_leaves_is_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    placer = warm(Pack, 5)
    for name in ("a", "b"):
        placer.submit(job(name), 0)
    placer.submit(job("c", "new", devices=4), 0)
    monkeypatch.setattr(placements, "slowdowns_of", lambda *_: {"a": 1.3})
    moved = placer.job_ended("c", 100)
    assert [(decision.job_id, decision.action) for decision in moved] == [("a", Action.MOVED)]
    monkeypatch.setattr(placements, "slowdowns_of", lambda *_: {"a": 1.1})
    assert placer.job_ended("b", 200) == []


def test_memory_of_a_group_is_that_of_its_smallest_node() -> None:
    small = [Node(name, "g", 8, Bytes(20, 1000, 0)) for name in ("n0", "n1")]
    placer = Pack([*small, Node("large", "g", 8, MEMORY)])
    placer.profiles |= {"k": profile(), "wide": profile()}
    placer.submit(job("a", num_bytes=15), 0)
    assert placer.submit(job("b", "wide", num_bytes=20), 0).action is Action.PLACED
    placer.job_ended("b", 0)
    assert placer.submit(job("c", "wide", num_bytes=21), 0).action is Action.REJECTED, "two such nodes there are not"
    placer.node_joined(Node("large2", "g2", 1, MEMORY), 0)
    one = Job("d", "wide", (Pool((Role.ROLLOUT,), 8, 21, 1.0), Pool((Role.TRAIN,), 1, 21, 1.0)))
    assert not set(groups_of(placer.submit(one, 0))) & set(placer.groups.jobs["a"].groups)
