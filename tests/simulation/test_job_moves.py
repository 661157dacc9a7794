"""A simulated job that is withdrawn, goes on, stops and starts again, by hand."""

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
import simpy

from plait.placement.demand_trace import FunctionRecord
from plait.placement.job import Role
from plait.residency.rates import TransferRates
from plait.residency.tier import Tier
from plait.scheduling.orders import Fifo
from plait.simulation.cluster import simulate_jobs
from plait.simulation.cluster_shape import ClusterShape, NodeFailure
from plait.simulation.group_meter import ClusterMeter, GroupMeter
from plait.simulation.group_residency import GroupResidency
from plait.simulation.groups import SimulatedGroup
from plait.simulation.hardware import accelerator
from plait.simulation.job_shape import JobShape, PartShape
from plait.simulation.jobs import SimulatedJob


@dataclass
class Alone:
    """One job on groups that nobody else is on; moving state takes no time."""

    shape: JobShape
    trained_s: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.env, self.meter = simpy.Environment(), ClusterMeter()
        self.job = SimulatedJob(self.env, self.shape, "0", lambda job: self._trained(), lambda job: self._trained())

    def _trained(self) -> None:
        self.trained_s.append(self.env.now)

    def groups(self) -> dict[Role, SimulatedGroup]:
        found = {}
        for role in Role:
            residency, meter = GroupResidency(100, TransferRates()), GroupMeter(self.meter, {"row": 1}, self.env.now)
            found[role] = SimulatedGroup(self.env, role.value, residency, Fifo(), meter)
            found[role].join(self.job.deployment(role), 0, Tier.HOST)
        return found

    def at(self, time_s: float, act: Callable[[], None]) -> None:
        self.env.timeout(time_s).callbacks.append(lambda _: act())

    def move(self, role: Role, from_s: float, to_s: float) -> None:
        """To other groups, between these times."""
        self.at(from_s, lambda: self.job.withdraw(role))
        self.at(to_s, lambda: self.job.resume(self.groups(), to_s))

    def run(self) -> list[float]:
        self.job.start(self.groups(), 0.0)
        self.env.run()
        return self.trained_s


def alone(rollout: PartShape, train: PartShape, steps: int = 1, staleness: int = 0) -> Alone:
    return Alone(JobShape("a", "k", "Qwen3-8B", 0.0, steps, rollout, train, staleness))


TWO_CALLS = PartShape(8, 20.0, num_calls=2, delay_s=50.0)
"""From 0 to 10 s, and from 60 to 70 s."""


@pytest.mark.parametrize(
    ("from_s", "to_s", "end_s"),
    [
        (30.0, 30.0, 70.0),  # In the delay: it runs on.
        (30.0, 65.0, 75.0),  # It is over by then.
        (4.0, 6.0, 72.0),  # In a call: what is done is kept.
        (64.0, 80.0, 86.0),
    ],
)
def test_a_rollout_that_moves_goes_on_where_it_was(from_s: float, to_s: float, end_s: float) -> None:
    watched = alone(TWO_CALLS, PartShape(8, 5.0))
    watched.move(Role.ROLLOUT, from_s, to_s)
    assert watched.run() == [pytest.approx(end_s + 5.0)]
    assert watched.job.own_s == pytest.approx(75.0)
    assert watched.meter.rollout_device_s == pytest.approx(20.0)
    assert watched.meter.lost_device_s == 0.0


def test_a_training_call_that_moves_starts_anew() -> None:
    watched = alone(PartShape(8, 10.0), PartShape(8, 40.0, num_calls=2))
    watched.move(Role.TRAIN, 35.0, 50.0)
    assert watched.run() == [pytest.approx(50.0 + 20.0)]
    assert (watched.meter.train_device_s, watched.meter.lost_device_s) == (pytest.approx(40.0), pytest.approx(5.0))


def test_delays_from_before_a_stop_are_void() -> None:
    """Answers are scored from 10 to 60 s; the job stops at 30 s, and its rollout begins anew at 40 s."""
    watched = alone(PartShape(8, 10.0, after_s=50.0), PartShape(8, 5.0))
    watched.at(30.0, watched.job.stop)
    watched.at(40.0, lambda: watched.job.start(watched.groups(), 40.0))
    assert watched.run() == [pytest.approx(40 + 10 + 50 + 5)]


def test_each_call_is_told_once_to_who_listened_as_it_ended() -> None:
    """Calls from 0 to 10 s and from 60 to 70 s are one event; listeners change at 30 s."""
    watched, first, second = alone(TWO_CALLS, PartShape(8, 5.0)), list[FunctionRecord](), list[FunctionRecord]()
    watched.job.record = lambda ended: ended.tell(first.append)
    watched.at(30.0, lambda: setattr(watched.job, "record", lambda ended: ended.tell(second.append)))
    watched.run()
    assert [(call.start_s, call.end_s, call.function) for call in first] == [(0.0, 10.0, "sample")]
    assert [(call.start_s, call.end_s, call.function) for call in second] == [(60.0, 70.0, "sample"), (70.0, 75.0, "train")]


def test_a_job_that_is_started_later_waits_until_then() -> None:
    watched = alone(PartShape(8, 10.0), PartShape(8, 5.0))
    watched.job.start(watched.groups(), 33.0)
    watched.env.run()
    assert watched.trained_s == [pytest.approx(33 + 15)]


def test_what_was_rolled_out_ahead_is_lost_with_a_node_and_so_is_the_update_under_way() -> None:
    """Five rollouts have ended by 500 s, of which four are trained and the fifth is being trained."""
    cluster = ClusterShape(accelerator("H100"), 32, switch_s=0.0)
    job = JobShape("a", "k", "Qwen3-8B", 0.0, 10, PartShape(8, 100.0), PartShape(8, 20.0), staleness=1)
    result = simulate_jobs(cluster, [job], "isolated", failures=[NodeFailure("node-0000", 510.0)])
    assert result.makespan_s == pytest.approx(510 + 6 * 100 + 20)
    assert result.jobs[0].own_s == pytest.approx(10 * 100 + 20)
    assert result.lost_share * result.device_hours * 3600 == pytest.approx(8 * (10 + 10))
