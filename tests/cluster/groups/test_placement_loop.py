"""From traces to moves: what the loop looks at, does, and tells."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from plait.cluster.groups.group_placement import GroupPlacement
from plait.cluster.groups.group_state import job_states
from plait.cluster.groups.placement_loop import PlacementLoop
from plait.cluster.groups.worker_groups import WorkerGroups
from plait.observe.events import GroupSample, JobMoved, Note
from plait.placement.demand_trace import FunctionRecord
from plait.placement.job import Role
from plait.types.errors import WorkerFailure
from tests.cluster.groups.jobs import make_group

NAMES = ("g0", "g1")


class Job:
    """Moves at once, or fails."""

    def __init__(self, groups: WorkerGroups, name: str, period_s: float, busy_s: float, error: Exception | None = None) -> None:
        self.groups, self.name, self.error = groups, name, error
        self.deployments = (f"{name}/rollout", f"{name}/train")
        self.asked: list[str] = []
        groups.join(name, self, 10)
        for number in range(20):
            start_s = number * period_s
            groups.demands[name].record(FunctionRecord(start_s, start_s + busy_s, "update", Role.TRAIN))

    async def move_to(self, group: str) -> bool:
        self.asked.append(group)
        if self.error is not None:
            raise self.error
        self.groups.moved(self.name, group)
        return True


def looped(folder: Path, policy: str, jobs: Callable[[WorkerGroups], list[Job]]) -> tuple[WorkerGroups, list[Job], list[Any]]:
    """After a few turns of the loop."""
    groups = make_group(folder, 100, names=NAMES, placement=GroupPlacement(NAMES, 100, policy=policy))
    events: list[Any] = []
    made = jobs(groups)

    async def run() -> None:
        async with PlacementLoop(groups, events.append, interval_s=0.005):
            while len([event for event in events if isinstance(event, GroupSample)]) < 6:
                await asyncio.sleep(0.005)

    asyncio.run(run())
    return groups, made, events


def test_jobs_whose_traces_tell_that_they_fit_come_together(tmp_path: Path) -> None:
    groups, jobs, events = looped(tmp_path, "pack", lambda groups: [Job(groups, name, 10.0, 3.0) for name in "ab"])
    assert [groups.group_of(job.name) for job in jobs] == ["g0", "g0"]
    moves = [(event.job, event.source, event.target) for event in events if isinstance(event, JobMoved)]
    assert moves == [("b", "g1", "g0")]
    assert groups.num_moves == {"g0": 1}
    assert [event.num_moves for event in events if isinstance(event, GroupSample)][-2:] == [1, 0]
    states = {state.name: state for state in job_states(groups)}
    assert states["b"].period_s is not None
    assert abs(states["b"].period_s - 10.0) < 0.1
    assert states["b"].expected_slowdown <= states["b"].max_slowdown


def test_jobs_that_fill_a_group_stay_apart(tmp_path: Path) -> None:
    groups, jobs, events = looped(tmp_path, "pack", lambda groups: [Job(groups, name, 10.0, 8.0) for name in "ab"])
    assert [groups.group_of(job.name) for job in jobs] == ["g0", "g1"]
    assert not [event for event in events if isinstance(event, JobMoved)]


def test_a_move_that_fails_is_told_and_not_tried_for_ever(tmp_path: Path) -> None:
    failure = WorkerFailure("there is no room")
    groups, jobs, events = looped(
        tmp_path, "pack", lambda groups: [Job(groups, "a", 10.0, 3.0), Job(groups, "b", 10.0, 3.0, failure)]
    )
    assert jobs[1].asked == ["g0"]
    assert groups.group_of("b") == "g1"
    assert [event.message for event in events if isinstance(event, Note)] == ["b stays at g1: g0 cannot take it: there is no room"]


def test_one_group_has_nothing_to_decide(tmp_path: Path) -> None:
    groups = make_group(tmp_path, 100)
    job = Job(groups, "a", 10.0, 3.0)
    groups.look()
    assert (groups.misplaced(), groups.group_of("a"), job.asked) == ({}, "group", [])


def test_a_job_that_leaves_is_the_placers_no_more(tmp_path: Path) -> None:
    groups, _, _ = looped(tmp_path, "spread", lambda groups: [Job(groups, name, 10.0, 3.0) for name in "ab"])
    groups.leave("a")
    groups.placement.settle()
    assert list(groups.placement.jobs) == ["b"]
    assert list(groups.placement.placer.groups.jobs) == ["b"]


class Slow:
    """Holds the placer's first answer back until it is let go of."""

    def __init__(self, groups: WorkerGroups) -> None:
        self.asked, self._release = threading.Event(), threading.Event()
        self.was_let_go = True
        placer = groups.placement.placer
        self._submit = placer.submit
        placer.submit = self._held  # type: ignore[method-assign]

    def _held(self, job: Any, now_s: float) -> Any:
        self.asked.set()
        self.was_let_go &= self._release.wait(60)
        return self._submit(job, now_s)

    def let_go(self) -> None:
        self._release.set()


@pytest.mark.parametrize("comes_again", [False, True])
def test_the_event_loop_is_free_while_the_placer_thinks(tmp_path: Path, comes_again: bool) -> None:
    """A job leaves meanwhile, and one of the same name may come: what was decided of the first is not the second's."""
    groups = make_group(tmp_path, 100, names=NAMES, placement=GroupPlacement(NAMES, 100, policy="pack"))
    jobs = [Job(groups, name, 10.0, 3.0) for name in "ab"]
    slow = Slow(groups)

    async def run() -> None:
        events: list[Any] = []
        async with PlacementLoop(groups, events.append, interval_s=0.001):
            await asyncio.to_thread(slow.asked.wait, 60)
            groups.leave("a")
            if comes_again:
                groups.join("a", jobs[0], 10)
            slow.let_go()
            while not events:
                await asyncio.sleep(0.001)

    asyncio.run(run())
    assert slow.was_let_go, "who asked was not free to let go of it"
    assert list(groups.placement.placer.groups.jobs) == ["b"]
    assert groups.placement.jobs.keys() == groups.jobs.keys() == ({"a", "b"} if comes_again else {"b"})
    assert not any(here.is_placed for job, here in groups.placement.jobs.items() if job == "a")


def test_whoever_ends_the_loop_waits_for_the_thread(tmp_path: Path) -> None:
    groups = make_group(tmp_path, 100, names=NAMES, placement=GroupPlacement(NAMES, 100, policy="pack"))
    Job(groups, "a", 10.0, 3.0)
    slow = Slow(groups)

    async def run() -> None:
        async with PlacementLoop(groups, lambda _: None, interval_s=0.001):
            await asyncio.to_thread(slow.asked.wait, 60)
            asyncio.get_running_loop().call_later(0.01, slow.let_go)
        assert list(groups.placement.placer.groups.jobs) == ["a"]

    asyncio.run(run())


class Leaving(Job):
    """Leaves as soon as it is to move, and takes another one with it."""

    async def move_to(self, group: str) -> bool:
        self.asked.append(group)
        for name in list(self.groups.jobs):
            if name != "a":
                self.groups.leave(name)
        raise WorkerFailure("it is gone")


def test_jobs_that_leave_in_the_midst_of_moves_stop_nobody(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def jobs(groups: WorkerGroups) -> list[Job]:
        return [Job(groups, "a", 10.0, 3.0), Leaving(groups, "b", 10.0, 3.0), Leaving(groups, "d", 10.0, 3.0)]

    groups, made, _ = looped(tmp_path, "pack", jobs)
    assert list(groups.jobs) == ["a"]
    assert sum(len(job.asked) for job in made) == 1
    assert "placing jobs failed" not in caplog.text
