"""Traces of jobs' calls at groups that they share: their demand as if each had been alone."""

from heapq import heappop, heappush

import pytest

from plait.cluster.groups.group_demand import GroupDemand
from plait.cluster.groups.job_demand import JobDemand
from plait.cluster.groups.own_times import OwnTimes, job_of
from plait.placement.demand_trace import FunctionRecord
from plait.placement.job import Role
from plait.scheduling.function_call import FunctionCall

PERIOD_S, ROLLOUT_S, TRAIN_S = 10.0, 3.0, 2.0


class Device:
    """Calls one at a time, first come first served; each job is a closed loop of a rollout, a pause and an update."""

    def __init__(self, jobs: list[str], switch_s: float = 0.0) -> None:
        self.times = OwnTimes()
        self.demands = {job: JobDemand(job, self.times, 0.0) for job in jobs}
        self.demand = GroupDemand(self.times, lambda job, record: self.demands[job].record(record))
        self.switch_s, self.last = switch_s, ""
        self.waiting: list[FunctionCall] = []
        self.running: FunctionCall | None = None
        self.events = [(0.0, index, self._call(job, 0, 0.0)) for index, job in enumerate(jobs)]

    def run(self, until_s: float) -> None:
        """Events: a call that arrives, or the one that runs and ends."""
        while self.events[0][0] < until_s:
            now_s, order, call = heappop(self.events)
            if call is self.running:
                self._end(call, order, now_s)
            else:
                self.waiting.append(call)
                self.demand.arrived(call)
                self.demand.account(now_s)
            if self.running is None and self.waiting:
                self._start(self.waiting.pop(0), order, now_s)

    def _start(self, call: FunctionCall, order: int, now_s: float) -> None:
        self.running = call
        self.demand.started(call, now_s)
        switch_s = self.switch_s if self.last != call.deployment else 0.0
        self.demand.set_up(switch_s)
        self.last = call.deployment
        heappush(self.events, (now_s + switch_s + (TRAIN_S if call.function == "update" else ROLLOUT_S), order, call))

    def _end(self, call: FunctionCall, order: int, now_s: float) -> None:
        self.running = None
        self.demand.ended(7, now_s)
        pause_s = PERIOD_S - ROLLOUT_S - TRAIN_S - 1.0 if call.function == "update" else 1.0
        job, number = job_of(call.deployment), call.size_tokens + 1
        heappush(self.events, (now_s + pause_s, order, self._call(job, number, now_s + pause_s)))

    @staticmethod
    def _call(job: str, number: int, arrival_s: float) -> FunctionCall:
        """Every other one is an update; its size counts them."""
        return FunctionCall(f"{job} {number}", f"{job}/w", "update" if number % 2 else "sample", "s", number, arrival_s)


def test_the_owner_of_a_deployment_is_its_job() -> None:
    assert [job_of(name) for name in ("Qwen/Qwen3-8B/train", "a/rollout", "a")] == ["Qwen/Qwen3-8B", "a", "a"]


def test_a_job_alone_tells_its_period_and_phases() -> None:
    device = Device(["a"])
    device.run(120.0)
    found = device.demands["a"].look(120.0)
    assert found.profile is not None
    assert found.profile.period_s == pytest.approx(PERIOD_S, rel=0.01)
    assert found.profile.duty([Role.ROLLOUT]) == pytest.approx(ROLLOUT_S / PERIOD_S, abs=0.02)
    assert found.profile.duty([Role.TRAIN]) == pytest.approx(TRAIN_S / PERIOD_S, abs=0.02)
    assert max(phase.num_bytes for phase in found.profile.phases) == 7
    assert device.demands["a"].slowdown == pytest.approx(1.0, abs=0.01)


def test_waiting_for_others_is_no_part_of_a_demand() -> None:
    """By hand: a waits 4 s of b's 5, twice; in its own time its calls are 10 s apart."""
    records: list[FunctionRecord] = []
    times = OwnTimes()
    demand = GroupDemand(times, lambda job, record: records.append(record) if job == "a" else None)
    for start_s in (0.0, 14.0):
        ours = FunctionCall(f"a{start_s}", "a/train", "update", "s", 0, start_s + 1)
        theirs = FunctionCall(f"b{start_s}", "b/train", "update", "s", 0, start_s)
        demand.arrived(theirs)
        demand.account(start_s)
        demand.started(theirs, start_s)
        demand.arrived(ours)
        demand.account(start_s + 1)
        demand.ended(0, start_s + 5)
        demand.started(ours, start_s + 5)
        demand.ended(0, start_s + 7)
    assert [(record.start_s, record.end_s) for record in records] == [(1.0, 3.0), (11.0, 13.0)]
    assert times.delay_s("a") == 8.0
    assert times.delay_s("b") == 0.0
    assert demand.busy_s == 14.0


def test_jobs_that_keep_each_other_waiting_tell_what_they_would_alone() -> None:
    device = Device(["a", "b"], switch_s=0.5)
    device.run(150.0)
    for job, demand in device.demands.items():
        assert device.times.delay_s(job) > 10.0
        found = demand.look(150.0)
        assert found.profile is not None
        assert found.profile.period_s == pytest.approx(PERIOD_S, rel=0.01)
        assert found.profile.duty([Role.TRAIN]) == pytest.approx(TRAIN_S / PERIOD_S, abs=0.02)
        assert demand.slowdown == pytest.approx(150.0 / (150.0 - device.times.delay_s(job)), rel=0.01)


def test_a_withdrawn_call_waits_no_more() -> None:
    times = OwnTimes()
    demand = GroupDemand(times)
    theirs, ours = (FunctionCall(name, f"{name}/w", "update", "s", 0, 0.0) for name in "ba")
    demand.arrived(theirs)
    demand.started(theirs, 0.0)
    demand.arrived(ours)
    demand.account(0.0)
    demand.withdrawn(ours)
    demand.account(3.0)
    demand.ended(0, 9.0)
    assert times.delay_s("a") == 3.0


def test_after_a_profile_the_trace_begins_anew() -> None:
    device = Device(["a"])
    device.run(120.0)
    demand = device.demands["a"]
    first = demand.look(120.0)
    assert first.profile is not None
    assert demand.look(121.0).profile is None, "nothing new"
    demand.record(FunctionRecord(130.0, 131.0, "update", Role.TRAIN))
    assert demand.look(132.0).profile is None
    assert demand.latest is first
