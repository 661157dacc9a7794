"""Whole jobs on base models of their own that share a group of worker processes, whose device has room for one of them."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from plait.cluster.groups.factory import grouped
from plait.cluster.groups.worker_groups import WorkerGroups
from plait.observe.events import AnyEvent, StepCommitted, WorkerLost
from plait.observe.log import read_latest_events
from plait.state.rundir import RunDirectory
from plait.tasks.driver import RunDriver
from tests.cluster.groups.jobs import Digests, job_settings, make_group, run_job

DEVICE_BYTES = 12_500_000
"""The largest of their four deployments, and hardly more."""
SPLIT = {"workers": {"layout": "split", "environment_processes": 1}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("jobs")


@pytest.fixture(scope="module")
def alone(folder: Path) -> dict[str, Digests]:
    """What each job trains in a worker process of its own."""

    async def both() -> list[Digests]:
        jobs = (run_job(job_settings(folder, job), RunDirectory.create(folder, f"alone-{job}", "")) for job in "ab")
        return await asyncio.gather(*jobs)

    return dict(zip("ab", asyncio.run(both()), strict=True))


async def run_grouped(groups: WorkerGroups, folder: Path, job: str, directory: RunDirectory, on_start=None) -> Digests:  # type: ignore[no-untyped-def]
    return await run_job(job_settings(folder, job, **SPLIT), directory, grouped(groups, job), on_start)


def test_jobs_that_take_turns_train_the_adapters_that_they_train_alone(folder: Path, alone: dict[str, Digests]) -> None:
    async def together() -> dict[str, Digests]:
        groups = make_group(folder, DEVICE_BYTES)
        directories = [RunDirectory.create(folder, f"together-{job}", "") for job in "ab"]
        runs = (run_grouped(groups, folder, job, directory) for job, directory in zip("ab", directories, strict=True))
        results = await asyncio.gather(*runs)
        group = groups.groups["group"]
        counters = group.dispatcher.counters
        assert group.pid is None, "the process ends with the last deployment"
        assert counters.num_switches >= 6
        assert counters.num_calls >= 2 * (3 + 3 + 1)
        return dict(zip("ab", results, strict=True))

    assert asyncio.run(together()) == alone


def test_a_job_survives_the_loss_of_its_group(folder: Path, alone: dict[str, Digests]) -> None:
    directory = RunDirectory.create(folder, "killed", "")

    async def disturbed() -> Digests:
        groups = make_group(folder, DEVICE_BYTES)
        killed: list[int] = []

        def kill_once(event: AnyEvent) -> None:
            pid = groups.groups["group"].pid
            if isinstance(event, StepCommitted) and not killed and pid is not None:
                killed.append(pid)
                asyncio.get_running_loop().call_later(0.05, os.kill, pid, signal.SIGKILL)

        def on_start(driver: RunDriver) -> None:
            driver.listeners.append(kill_once)

        return await run_grouped(groups, folder, "a", directory, on_start)

    assert asyncio.run(disturbed()) == alone["a"]
    lost = [event.worker for event in read_latest_events(directory.events) if isinstance(event, WorkerLost)]
    assert sorted(lost) == ["rollout", "train"], "each of its workers hears of it once"


def test_jobs_over_two_groups_train_what_they_train_alone(folder: Path, alone: dict[str, Digests]) -> None:
    async def apart() -> dict[str, Digests]:
        groups = make_group(folder, DEVICE_BYTES, names=("g0", "g1"))
        where: dict[str, str] = {}

        def see(event: AnyEvent) -> None:
            where.update({job: groups.group_of(job) for job in groups.jobs})

        directories = [RunDirectory.create(folder, f"apart-{job}", "") for job in "ab"]
        runs = (
            run_grouped(groups, folder, job, directory, lambda driver: driver.listeners.append(see))
            for job, directory in zip("ab", directories, strict=True)
        )
        results = await asyncio.gather(*runs)
        assert where == {"a": "g0", "b": "g1"}
        assert all(group.dispatcher.counters.num_calls >= 3 + 3 + 1 for group in groups.groups.values())
        return dict(zip("ab", results, strict=True))

    assert asyncio.run(apart()) == alone


def test_a_job_that_is_moved_twice_trains_what_it_trains_unmoved(folder: Path, alone: dict[str, Digests]) -> None:
    directory = RunDirectory.create(folder, "moved", "")
    moves: list[asyncio.Task[bool]] = []

    async def moving() -> Digests:
        groups = make_group(folder, DEVICE_BYTES, names=("g0", "g1"))

        def move_once_a_step(event: AnyEvent) -> None:
            if isinstance(event, StepCommitted) and event.step < 3:
                target = {"g0": "g1", "g1": "g0"}[groups.group_of("a")]
                moves.append(asyncio.create_task(after(moves[-1:], groups, target)))

        result = await run_grouped(groups, folder, "a", directory, lambda driver: driver.listeners.append(move_once_a_step))
        assert [await move for move in moves] == [True, True]
        assert groups.num_moves == {"g0": 1, "g1": 1}
        assert [group.pid for group in groups.groups.values()] == [None, None]
        return result

    assert asyncio.run(moving()) == alone["a"]
    assert not [event for event in read_latest_events(directory.events) if isinstance(event, WorkerLost)], "a move is no loss"


async def after(earlier: list[asyncio.Task[bool]], groups: WorkerGroups, target: str) -> bool:
    await asyncio.gather(*earlier)
    return await groups.jobs["a"].move_to(target)


PARENT = """
import asyncio, sys
from tests.cluster.groups.hosts import group_settings
from plait.cluster.groups.group_link import GroupLink
from pathlib import Path

async def main():
    link = await GroupLink.start(group_settings(Path(sys.argv[1])), print, print)
    print(link.pid, flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""


def test_a_group_does_not_outlive_its_controller(tmp_path: Path) -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    parent.stdout.close()
    deadline_s = time.monotonic() + 20
    while os.path.exists(f"/proc/{pid}"):
        assert time.monotonic() < deadline_s
        time.sleep(0.05)
