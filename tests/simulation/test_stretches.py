"""Calls as one event are as calls one by one: not about as, but to the last bit."""

from collections.abc import Sequence

import msgspec
import pytest
import simpy
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from plait.scheduling.orders import ORDERS
from plait.simulation.call_stretch import CallStretch
from plait.simulation.cluster import POLICIES, SimulatedCluster
from plait.simulation.cluster_shape import NodeFailure
from plait.simulation.groups import SimulatedGroup
from plait.simulation.job_shape import JobShape
from plait.simulation.jobs_result import JobsResult
from plait.simulation.moment import Moment
from plait.simulation.plexrl_jobs import plexrl_jobs
from tests.simulation.test_cluster_jobs import CLUSTER, scored, workload

FAILURES = [NodeFailure("node-0001", 5000.0, 100.0)]
FIGURES = ("busy_share", "setup_share", "lost_share", "device_hours", "decode_realised_to_peak")
Busy = tuple[str, float, float, str, str]


def simulated(
    jobs: Sequence[JobShape], policy: str, order: str, failures: Sequence[NodeFailure], state_share: float, is_one_by_one: bool
) -> tuple[JobsResult, list[Busy], int]:
    """With all that devices did, and the number of events on the clock."""
    submit, intervals = SimulatedGroup.submit, list[Busy]()

    def submit_one(group: SimulatedGroup, work: CallStretch) -> None:
        work.num_calls = 1
        submit(group, work)

    with pytest.MonkeyPatch.context() as patch:
        if is_one_by_one:
            patch.setattr(SimulatedGroup, "submit", submit_one)
        shape = msgspec.structs.replace(CLUSTER, state_share=state_share)
        cluster = SimulatedCluster(shape, policy, order, 0, lambda *busy: intervals.append(busy), retrace_steps=16)
        cluster.add(jobs, failures)
        result = cluster.run()
    return result, sorted(intervals), next(cluster.env._eid)


@settings(deadline=None, max_examples=6, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(
    policy=st.sampled_from(sorted(POLICIES)), order=st.sampled_from(sorted(ORDERS)), staleness=st.integers(0, 2),
    seed=st.integers(0, 50), fails=st.booleans(), after_s=st.sampled_from([0.0, 20.0]), state_share=st.sampled_from([0.6, 0.3]),
)  # fmt: skip
@example(policy="spread", order="shortest-first", staleness=2, seed=29, fails=False, after_s=0.0, state_share=0.6)
def test_calls_as_one_event_are_as_calls_one_by_one(
    policy: str, order: str, staleness: int, seed: int, fails: bool, after_s: float, state_share: float
) -> None:
    jobs = scored(plexrl_jobs(workload(6, staleness, median_job_s=4000.0), seed), after_s)
    merged, merged_busy, num_merged = simulated(jobs, policy, order, FAILURES * fails, state_share, False)
    single, single_busy, num_single = simulated(jobs, policy, order, FAILURES * fails, state_share, True)
    assert [(job.start_s, job.end_s, job.own_s, job.moves) for job in merged.jobs] == [
        (job.start_s, job.end_s, job.own_s, job.moves) for job in single.jobs
    ]
    assert merged_busy == single_busy
    counts = [(found.num_calls, found.num_switches, found.num_decisions, found.call_waits.count) for found in (merged, single)]
    assert counts[0] == counts[1]
    assert [getattr(merged, name) for name in FIGURES] == pytest.approx([getattr(single, name) for name in FIGURES])
    assert num_merged < num_single


@given(st.floats(0, 1e7), st.floats(0, 1e6))
def test_the_clock_comes_to_a_moment_to_the_last_bit(now_s: float, left_s: float) -> None:
    env, times_s = simpy.Environment(now_s), list[float]()
    Moment(env, now_s + left_s).callbacks.append(lambda _: times_s.append(env.now))
    env.run()
    assert times_s == [now_s + left_s]
