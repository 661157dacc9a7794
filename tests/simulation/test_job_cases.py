"""Jobs on a simulated cluster by hand: what moving state takes, when who starts, what is told of whom, and what nodes cost."""

import msgspec
import pytest

from plait.placement.decision import Decision
from plait.placement.job import Job, Role
from plait.placement.job_profile import JobProfile
from plait.simulation.cluster import SimulatedCluster, simulate_jobs
from plait.simulation.cluster_shape import ClusterShape, NodeFailure
from plait.simulation.costs import CostModel, RooflineCosts
from plait.simulation.hardware import accelerator
from plait.simulation.job_pools import placed_job
from plait.simulation.job_results import num_late
from plait.simulation.job_shape import JobShape, PartShape
from plait.simulation.jobs_result import JobOutcome
from plait.simulation.model_shapes import model_shape

GB = 10**9
H100 = accelerator("H100")
CLUSTER = ClusterShape(H100, 32, nodes_per_group=2, switch_s=3.0)
DISK, HOST = 0.8 * 3e9, 0.8 * 55e9
"""Bytes a second of a device."""


def job(name: str = "a", arrival_s: float = 0.0, steps: int = 10, **changes: object) -> JobShape:
    rollout = PartShape(8, 100.0, bytes_per_device=10 * GB)
    train = PartShape(8, 20.0, bytes_per_device=30 * GB)
    shape = JobShape(name, "k", "Qwen3-8B", arrival_s, steps, rollout, train)
    return msgspec.structs.replace(shape, **changes)


def test_a_job_s_state_comes_from_disk_once() -> None:
    first_s = 3.0 + 10 * GB / DISK + 100 + 3.0 + 30 * GB / DISK + 20
    result = simulate_jobs(CLUSTER, [job()], "isolated")
    assert result.makespan_s == pytest.approx(first_s + 9 * 120)
    assert result.jobs[0].slowdown == pytest.approx((first_s + 9 * 120) / 1200)
    held_s = 16 * result.makespan_s
    assert result.device_hours == pytest.approx(held_s / 3600)
    assert result.setup_share == pytest.approx(8 * (first_s - 120) / held_s)
    assert result.rollout_share == pytest.approx(8 * 1000 / held_s)
    assert result.decode_realised_to_peak == pytest.approx(0.8 * 1000 / result.makespan_s)


def test_who_lost_a_node_goes_on_elsewhere_with_what_is_on_disk() -> None:
    """In the third step, of which all is lost."""
    result = simulate_jobs(CLUSTER, [job()], "isolated", failures=[NodeFailure("node-0000", 300.0, 50.0)])
    outcome = result.jobs[0]
    setup_s = 6.0 + 40 * GB / DISK
    assert (outcome.start_s, outcome.restarts) == (0.0, 1)
    done = int((300.0 - setup_s) / 120)
    assert result.makespan_s == pytest.approx(300.0 + setup_s + (10 - done) * 120)
    lost_s = 300.0 - setup_s - done * 120
    assert result.lost_share * result.device_hours * 3600 == pytest.approx(8 * lost_s)


def test_moves_that_were_cut_short_count_as_far_as_they_came() -> None:
    """A node is lost while the first rollout's state is on its way."""
    result = simulate_jobs(CLUSTER, [job()], "isolated", failures=[NodeFailure("node-0000", 2.0)])
    assert result.setup_share * result.device_hours * 3600 == pytest.approx(8 * (2.0 + 6.0 + 40 * GB / DISK))
    assert result.lost_share == 0.0


def test_a_node_that_comes_back_takes_who_waits_for_it() -> None:
    small = msgspec.structs.replace(CLUSTER, num_devices=16)
    result = simulate_jobs(small, [job()], "isolated", failures=[NodeFailure("node-0001", 300.0, 1000.0)])
    setup_s = 6.0 + 40 * GB / DISK
    done = int((300.0 - setup_s) / 120)
    assert result.makespan_s == pytest.approx(1300.0 + setup_s + (10 - done) * 120)


def test_usual_times_of_a_job_are_those_that_it_takes() -> None:
    rollout, train = PartShape(8, 90.0, num_calls=3, delay_s=5.0, after_s=2.0), PartShape(8, 20.0, num_calls=2, after_s=3.0)
    shape = JobShape("a", "k", "Qwen3-8B", 0.0, 10, rollout, train)
    assert (shape.period_s, shape.alone_s) == (125.0, 1250.0)
    stale = msgspec.structs.replace(shape, staleness=1)
    assert (stale.period_s, stale.alone_s) == (102.0, 10 * 102.0 + 23.0)
    for each in (shape, stale):
        assert simulate_jobs(CLUSTER, [each], "isolated").jobs[0].own_s == pytest.approx(each.alone_s)


def test_a_drift_reaches_its_whole_at_the_last_step() -> None:
    rollout = PartShape(8, 100.0, drift=0.5)
    outcome = simulate_jobs(CLUSTER, [JobShape("a", "k", "Qwen3-8B", 0.0, 3, rollout, PartShape(8, 20.0))], "isolated").jobs[0]
    assert outcome.own_s == pytest.approx(100 + 125 + 150 + 3 * 20)


def test_the_placer_is_told_what_a_switch_takes() -> None:
    costs: dict[Role, CostModel] = dict.fromkeys(Role, RooflineCosts(H100, model_shape("Qwen3-8B"), 8))
    split = placed_job(job(), costs, 3.0)
    assert [pool.switch_s for pool in split.pools] == pytest.approx([3.0 + 2 * 10 * GB / HOST, 3.0 + 2 * 30 * GB / HOST])
    both = placed_job(job(is_colocated=True), costs, 3.0)
    assert [(pool.bytes_per_device, pool.switch_s) for pool in both.pools] == [(30 * GB, pytest.approx(3.0 + 2 * 30 * GB / HOST))]


def test_groups_have_the_state_share_of_all_their_devices() -> None:
    cluster = SimulatedCluster(CLUSTER, "isolated", "hrrs", 0)
    cluster.add([job()])
    cluster.run(until_s=1.0)
    assert [group.residency._budget_bytes for group in cluster.groups.values()] == [8 * int(0.6 * 80 * GB)] * 2


def test_profiles_are_told_with_the_start_of_a_period_on_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[float, float]] = []
    busy: list[tuple[str, float, float, str, str]] = []
    cluster = SimulatedCluster(CLUSTER, "pack", "hrrs", 0, lambda *span: busy.append(span))

    def updated(job_id: str, profile: JobProfile, now_s: float, anchor_s: float) -> list[object]:
        told.append((now_s, anchor_s))
        return []

    monkeypatch.setattr(cluster.placer, "profile_updated", updated)
    cluster.add([job(arrival_s=77.0, steps=80)])
    cluster.run()
    phases_s = [start_s for _, start_s, _, _, what in busy if what != "setup"]
    assert len(told) == 2
    for now_s, anchor_s in told:
        assert now_s - 10 * 120 < anchor_s < now_s
        assert min(abs(anchor_s - start_s) for start_s in phases_s) < 1e-3


def test_a_job_starts_when_the_placer_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second of a kind is shifted into the bubbles of the first."""
    busy: list[tuple[str, float, float, str, str]] = []
    cluster = SimulatedCluster(CLUSTER, "pack", "hrrs", 0, lambda *span: busy.append(span))
    cluster.add([job("a", steps=60), job("b", 4822.0, steps=10)])
    starts: dict[str, float] = {}
    submit = cluster.placer.submit

    def watched(placed: Job, now_s: float) -> Decision:
        decision = submit(placed, now_s)
        starts[decision.job_id] = now_s + decision.shift_s
        return decision

    monkeypatch.setattr(cluster.placer, "submit", watched)
    cluster.run()
    assert starts["b"] > 4822.0
    first_s = min(start_s for _, start_s, _, deployment, _ in busy if deployment.startswith("b/"))
    assert first_s >= starts["b"] - 1e-6


def test_late_is_who_takes_longer_than_its_own_bound_allows() -> None:
    jobs = [job("a", slo=1.1), job("b", slo=1.5), job("c", slo=1.1)]
    ends_s = {"a": 140.0, "b": 140.0, "c": None}
    outcomes = tuple(JobOutcome(name, "k", "m", 16, 0.0, 0.0, end_s, 10, 100.0, 1.0) for name, end_s in ends_s.items())
    assert num_late(jobs, outcomes) == 1
