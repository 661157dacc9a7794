"""Jobs on a simulated cluster: what must hold whatever the jobs, the policy and the failures."""

from collections import defaultdict
from itertools import pairwise

import msgspec
import pytest
import simpy
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from plait.placement.job import Role
from plait.residency.rates import TransferRates
from plait.residency.tier import Tier
from plait.scheduling.orders import ORDERS, Fifo
from plait.simulation.cluster import POLICIES, SimulatedCluster, simulate_jobs
from plait.simulation.cluster_shape import ClusterShape, NodeFailure
from plait.simulation.group_meter import ClusterMeter, GroupMeter
from plait.simulation.group_residency import GroupResidency
from plait.simulation.groups import SimulatedGroup
from plait.simulation.hardware import accelerator
from plait.simulation.job_shape import JobShape, PartShape
from plait.simulation.job_systems import SYSTEMS
from plait.simulation.jobs import SimulatedJob
from plait.simulation.jobs_result import JobsResult
from plait.simulation.plexrl_jobs import SIZES, PlexrlWorkload, colocated, plexrl_jobs
from plait.types.errors import ConfigError

CLUSTER = ClusterShape(accelerator("H800"), 32, nodes_per_group=2)
TINY = tuple(
    msgspec.structs.replace(size, rollout_devices=num, train_devices=num, parameters=num * 1e9)
    for size, num in zip(SIZES, (4, 8, 16), strict=True)
)


def workload(num_jobs: int, staleness: int = 0, **changes: float) -> PlexrlWorkload:
    values = {
        "num_jobs": num_jobs,
        "gap_s": 300.0,
        "staleness": staleness,
        "sizes": TINY,
        "median_job_s": 6000.0,
        "kinds_per_size": 1,
    }
    return PlexrlWorkload(**(values | changes))  # type: ignore[arg-type]


def scored(jobs: tuple[JobShape, ...], after_s: float) -> tuple[JobShape, ...]:
    """Answers are scored, and steps recorded, for about so long."""
    return tuple(
        msgspec.structs.replace(
            job,
            rollout=msgspec.structs.replace(job.rollout, after_s=after_s, after_jitter=0.2 * bool(after_s)),
            train=msgspec.structs.replace(job.train, after_s=after_s / 4),
        )
        for job in jobs
    )


def check_devices(
    cluster: SimulatedCluster, intervals: list[tuple[str, float, float, str, str]], slices: dict[str, list[str]]
) -> None:
    """No device does two things at once."""
    by_device = defaultdict(list)
    for group, start_s, end_s, _, _ in intervals:
        assert end_s >= start_s
        for device in slices[group]:
            by_device[device].append((start_s, end_s))
    for times in by_device.values():
        times.sort()
        for (_, end_s), (start_s, _) in pairwise(times):
            assert start_s >= end_s - 1e-6


def run_watched(
    jobs: tuple[JobShape, ...], policy: str, order: str, failures: tuple[NodeFailure, ...] = (), retrace_steps: int = 16
) -> tuple[JobsResult, list[tuple[str, float, float, str, str]]]:
    intervals: list[tuple[str, float, float, str, str]] = []
    slices: dict[str, list[str]] = {}
    cluster = SimulatedCluster(CLUSTER, policy, order, 0, lambda *busy: intervals.append(busy), CLUSTER.costs, retrace_steps)
    opened = cluster._open

    def open_group(group_id, parts, model):  # type: ignore[no-untyped-def]
        slices[str(group_id)] = [f"{part.node_id}/{device}" for part in parts for device in part.devices]
        return opened(group_id, parts, model)

    cluster._open = open_group  # type: ignore[method-assign]
    cluster.add(jobs, failures)
    result = cluster.run()
    check_devices(cluster, intervals, slices)
    return result, intervals


@settings(deadline=None, max_examples=12, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(
    policy=st.sampled_from(sorted(POLICIES)), order=st.sampled_from(sorted(ORDERS)), staleness=st.integers(0, 2),
    seed=st.integers(0, 50), fails=st.booleans(), drift=st.sampled_from([0.0, 1.5]), after_s=st.sampled_from([0.0, 20.0]),
)  # fmt: skip
def test_work_is_conserved_and_devices_do_one_thing(
    policy: str, order: str, staleness: int, seed: int, fails: bool, drift: float, after_s: float
) -> None:
    jobs = scored(plexrl_jobs(workload(6, staleness, drift=drift), seed), after_s)
    failures = tuple(NodeFailure(f"node-{node:04}", 2000.0 + 3000 * node, 1000.0) for node in range(3)) if fails else ()
    result, intervals = run_watched(jobs, policy, order, failures)
    run = [outcome for outcome in result.jobs if not outcome.is_rejected]  # Too large for what is left of the cluster.
    assert result.num_ended == len(run) >= len(jobs) - 2 * fails
    assert [outcome.steps_done for outcome in run] == [
        job.steps for job, outcome in zip(jobs, result.jobs, strict=True) if outcome in run
    ]
    service = sum(end - start for _, start, end, _, what in intervals if what != "setup")
    if not any(outcome.moves + outcome.restarts for outcome in result.jobs):  # A call that moved is told in two parts.
        per_step = {job.job_id: job.rollout.num_calls + job.train.num_calls for job in jobs}
        assert len([1 for interval in intervals if interval[4] != "setup"]) == sum(job.steps * per_step[job.job_id] for job in jobs)
    assert service > 0
    shares = result.busy_share + result.setup_share + result.lost_share
    assert 0 < shares <= 1 + 1e-9
    assert sum(outcome.device_hours for outcome in result.jobs) == pytest.approx(result.device_hours)
    for outcome in run:
        assert (outcome.slowdown or 0.0) >= 1 - 1e-9  # Nothing ends before what it follows from.
        assert (outcome.start_s or 0.0) >= outcome.arrival_s


def test_the_same_seed_gives_the_same_bytes_and_another_does_not() -> None:
    jobs = plexrl_jobs(workload(5, 1), 3)
    found = [msgspec.json.encode(simulate_jobs(CLUSTER, jobs, "spread+backfill", seed=seed)) for seed in (0, 0, 1)]
    assert found[0] == found[1] != found[2]


def test_all_policies_and_orders_draw_the_same_work() -> None:
    jobs = plexrl_jobs(workload(6), 5)
    results = [simulate_jobs(CLUSTER, jobs, policy, order) for policy, order in (("isolated", "fifo"), ("pack", "hrrs"))]
    assert [job.own_s for job in results[0].jobs] == pytest.approx([job.own_s for job in results[1].jobs])


def test_what_follows_a_part_needs_no_device() -> None:
    """Two jobs on one group: while the answers of one are scored, the other's calls run. A step is 40 + 60 + 15 + 5 s."""
    rollout, train = PartShape(8, 40.0, after_s=60.0, bytes_per_device=1), PartShape(8, 15.0, after_s=5.0, bytes_per_device=1)
    jobs = [JobShape(name, name, "Qwen3-8B", 0.0, 10, rollout, train, is_colocated=True) for name in "ab"]
    cluster = msgspec.structs.replace(CLUSTER, switch_s=0.0)
    alone = simulate_jobs(cluster, jobs[:1], "isolated").jobs[0]
    assert (alone.own_s, alone.slowdown) == (pytest.approx(10 * 120), pytest.approx(1.0, abs=1e-4))
    assert jobs[0].alone_s == pytest.approx(10 * 120)
    assert jobs[0].bubble == pytest.approx(1 - 15 / 120)
    env = simpy.Environment()
    group = SimulatedGroup(env, "g", GroupResidency(100, TransferRates()), Fifo(), GroupMeter(ClusterMeter(), {"row": 8}, 0.0))
    ends_s: dict[str, list[float]] = {"a": [], "b": []}
    for shape in jobs:
        job = SimulatedJob(env, shape, "0", lambda job: None, lambda job: ends_s[job.shape.job_id].append(env.now))
        for role in Role:
            group.join(job.deployment(role), 0, Tier.HOST)
        job.start(dict.fromkeys(Role, group), 0.0)
    env.run()
    # The second waits 40 s to roll out and 20 s to train, for rollouts of the first; then never again.
    assert ends_s == {"a": [pytest.approx(10 * 120)], "b": [pytest.approx(40 + 20 + 10 * 120)]}


def test_one_job_alone_takes_its_steps_one_after_another() -> None:
    """By hand: a synchronous step is rollout, two delays, training; an asynchronous one hides training behind the next rollout."""
    rollout, train = PartShape(8, 90.0, num_calls=3, delay_s=5.0), PartShape(8, 20.0, num_calls=2)
    synchronous = JobShape("a", "k", "Qwen3-8B", 50.0, 10, rollout, train)
    result = simulate_jobs(CLUSTER, [synchronous], "isolated")
    assert result.jobs[0].own_s == pytest.approx(10 * 120)
    assert result.makespan_s == pytest.approx(50 + 1200)
    assert synchronous.bubble == pytest.approx(1 - 20 / 120)
    assert result.device_hours == pytest.approx(16 * 1200 / 3600, rel=0.01)
    result = simulate_jobs(CLUSTER, [msgspec.structs.replace(synchronous, staleness=1)], "isolated")
    assert result.jobs[0].own_s == pytest.approx(10 * 100 + 20)


@pytest.mark.parametrize("staleness", [0, 1, 3])
def test_alone_the_own_clock_is_the_clock(staleness: int) -> None:
    rollout, train = PartShape(8, 90.0, 3, 5.0, jitter=0.5, drift=0.5), PartShape(8, 60.0, 2, jitter=0.8)
    job = JobShape("a", "k", "Qwen3-8B", 7.0, 60, rollout, train, staleness)
    outcome = simulate_jobs(CLUSTER, [job], "pack", until_s=1e6).jobs[0]
    assert outcome.slowdown == pytest.approx(1.0)


def test_sharing_saves_devices_where_bubbles_are_large() -> None:
    jobs = plexrl_jobs(workload(16, sizes=TINY[:1], drift=0.0), 1)  # type: ignore[arg-type]
    isolated, packed = (simulate_jobs(CLUSTER, jobs, policy) for policy in ("isolated", "pack"))
    assert packed.num_switches > isolated.num_switches == 0
    assert packed.device_hours < 0.9 * isolated.device_hours
    assert packed.job_waits.mean < isolated.job_waits.mean


def test_colocated_jobs_take_turns_on_one_pool() -> None:
    jobs = colocated(plexrl_jobs(workload(3), 1))
    result = simulate_jobs(CLUSTER, jobs, "isolated")
    assert result.num_ended == 3
    assert result.num_switches >= 2 * result.num_steps - 6


def test_jobs_whose_demand_drifts_are_placed_anew() -> None:
    jobs = plexrl_jobs(workload(10, 1, drift=1.5, gap_s=200.0, sizes=TINY[:2], median_job_s=12_000.0), 1)  # type: ignore[arg-type]
    result, _ = run_watched(jobs, "pack", "hrrs")
    assert result.num_ended == len(jobs)
    assert sum(job.moves for job in result.jobs) > 0
    assert all((job.slowdown or 0.0) >= 1 for job in result.jobs)


def test_long_runs_keep_their_timelines_short_and_whole() -> None:
    jobs = plexrl_jobs(workload(20, gap_s=40_000.0), 2)
    result = simulate_jobs(CLUSTER, jobs, "pack")
    held = sum(sum(row.held) * result.bin_s for row in result.timelines)
    busy = sum(sum(row.busy) * result.bin_s for row in result.timelines)
    assert len(result.timelines) == 4, "each node of a small cluster has its own"
    assert all(len(row.held) <= 512 for row in result.timelines)
    assert held / 3600 == pytest.approx(result.device_hours, rel=1e-6)
    assert busy / held == pytest.approx(result.busy_share, rel=1e-6)


@pytest.mark.parametrize(
    ("changes", "named"), [({"policy": "packed"}, "policy"), ({"order": "lifo"}, "order"), ({"jobs": 2}, "two jobs")]
)
def test_what_is_wrong_is_named(changes: dict[str, object], named: str) -> None:
    job = JobShape("a", "k", "Qwen3-8B", 0.0, 1, PartShape(8, 1.0), PartShape(8, 1.0))
    jobs = [job] * int(str(changes.pop("jobs", 1)))
    with pytest.raises(ConfigError, match=named):
        simulate_jobs(CLUSTER, jobs, **({"policy": "pack"} | changes))  # type: ignore[arg-type]


def test_shapes_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ConfigError, match="num_devices is 30"):
        ClusterShape(accelerator("H800"), 30)
    with pytest.raises(ConfigError, match="job a: rollout"):
        JobShape("a", "k", "Qwen3-8B", 0.0, 1, PartShape(0, 1.0), PartShape(8, 1.0))
    with pytest.raises(ConfigError, match="colocated"):
        JobShape("a", "k", "Qwen3-8B", 0.0, 1, PartShape(8, 1.0), PartShape(16, 1.0), is_colocated=True)


def test_every_system_does_the_same_steps() -> None:
    jobs = plexrl_jobs(workload(4, 1), 1)
    results = {name: simulate_jobs(CLUSTER, system.adapt(jobs), system.policy) for name, system in SYSTEMS.items()}
    assert len({result.num_steps for result in results.values()}) == 1
    assert results["split-async"].makespan_s < results["split-sync"].makespan_s
