"""Whole jobs on base models of their own that share a group of worker processes, whose device has room for one of them."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from plait.cluster.groups.factory import WorkerFactory, grouped
from plait.cluster.groups.worker_group import WorkerGroup
from plait.cluster.groups.worker_groups import WorkerGroups
from plait.config.run import RunSettings
from plait.observe.events import AnyEvent, StepCommitted, WorkerLost
from plait.observe.log import read_latest_events
from plait.state.rundir import RunDirectory
from plait.tasks.driver import RunDriver
from plait.types.errors import WorkerFailure
from tests.cluster.groups.jobs import Digests, job_settings, make_group, run_job
from tests.runs import tiny_task

DEVICE_BYTES = 12_500_000
"""The largest of their four deployments, and hardly more."""
SPLIT = {"workers": {"layout": "split", "environment_processes": 1}}
THREADS = {"workers": {"layout": "shared", "executor": "thread", "environment_processes": 1}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("jobs")


@pytest.fixture(scope="module")
def alone(folder: Path) -> dict[str, Digests]:
    """What each job trains by itself, with a worker of its own."""

    async def both() -> list[Digests]:
        jobs = (run_job(job_settings(folder, job, **THREADS), RunDirectory.create(folder, f"alone-{job}", "")) for job in "ab")
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


@pytest.mark.parametrize("executor", ["process", "thread"])
def test_jobs_that_share_only_training_train_what_they_train_alone(folder: Path, alone: dict[str, Digests], executor: str) -> None:
    """In threads of this process, or with the group killed in the midst."""
    layout = {"layout": "multiplexed_training", "executor": executor, "environment_processes": 1, "device_bytes": DEVICE_BYTES}
    settings = {job: job_settings(folder, job, workers=layout) for job in "ab"}
    directories = {job: RunDirectory.create(folder, f"training-{executor}-{job}", "") for job in "ab"}
    killed: list[int] = []

    async def together() -> dict[str, Digests]:
        factory = WorkerFactory(settings["a"].workers, "cpu")
        assert factory.groups is not None
        group = factory.groups.groups["group"]

        def kill_once(event: AnyEvent) -> None:
            if isinstance(event, StepCommitted) and not killed and executor == "process" and group.pid is not None:
                killed.append(group.pid)
                os.kill(group.pid, signal.SIGKILL)

        makers = {job: factory.of(job) for job in "ab"}
        runs = [
            run_job(settings[job], directories[job], make, lambda driver: driver.listeners.append(kill_once))
            for job, make in makers.items()
            if make is not None
        ]
        results = await asyncio.gather(*runs)
        assert group.dispatcher.counters.num_calls >= 2 * (3 + 1)
        await factory.aclose()
        return dict(zip("ab", results, strict=True))

    assert asyncio.run(together()) == alone
    events = [event for directory in directories.values() for event in read_latest_events(directory.events)]
    lost = [event.worker for event in events if isinstance(event, WorkerLost)]
    assert lost == ["train"] * 2 * len(killed), "rollouts go on"
    assert bool(killed) == (executor == "process")


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


def test_a_job_that_moves_in_the_midst_trains_what_it_trains_alone(
    folder: Path, alone: dict[str, Digests], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each starts at a group of its own; then they share one."""
    losses, on_lost = list[WorkerFailure](), WorkerGroup._on_lost

    def note_loss(group: WorkerGroup, failure: WorkerFailure) -> None:
        losses.append(failure)
        on_lost(group, failure)

    monkeypatch.setattr(WorkerGroup, "_on_lost", note_loss)
    directories = {job: RunDirectory.create(folder, f"moved-{job}", "") for job in "ab"}
    starts: dict[str, str] = {}
    moves: list[asyncio.Task[bool]] = []

    async def apart() -> dict[str, Digests]:
        groups = make_group(folder, DEVICE_BYTES, names=("g0", "g1"))

        def on_start(driver: RunDriver) -> None:
            driver.listeners.append(lambda event: move_after_a_step(event, driver))

        def move_after_a_step(event: AnyEvent, driver: RunDriver) -> None:
            if isinstance(event, StepCommitted) and event.step == 1:
                starts.update({job: groups.group_of(job) for job in groups.jobs})
                moves.append(asyncio.create_task(groups.jobs["a"].move_to(starts["b"])))
            elif isinstance(event, StepCommitted) and event.step == 2 and not moves[0].done():
                driver.pause("task")  # It is not to end before it has moved.
                moves[0].add_done_callback(lambda _: driver.resume("task"))

        runs = [
            run_job(slow_settings(folder, "a"), directories["a"], grouped(groups, "a"), on_start),
            run_job(slow_settings(folder, "b"), directories["b"], grouped(groups, "b")),
        ]
        results = await asyncio.gather(*runs)
        assert moves[0].result()
        assert groups.num_moves == {starts["b"]: 1}
        assert all(group.dispatcher.counters.num_calls for group in groups.groups.values())
        assert [group.pid for group in groups.groups.values()] == [None, None]
        return dict(zip("ab", results, strict=True))

    assert asyncio.run(apart()) == alone
    assert sorted(starts.values()) == ["g0", "g1"]
    events = [event for directory in directories.values() for event in read_latest_events(directory.events)]
    assert not [event for event in events if isinstance(event, WorkerLost)], "a move is no loss"
    assert not losses, "nor of those who stay"


def slow_settings(folder: Path, job: str) -> RunSettings:
    """Each step takes long enough for a move beside it."""
    task = tiny_task("task", seed=ord(job))
    task["environment"] |= {"delay": {"kind": "fixed", "mean_s": 1.0}}
    return job_settings(folder, job, task, **SPLIT)


PARENT = """
import asyncio, sys
from tests.cluster.groups.hosts import group_settings
from plait.cluster.executors.process import ProcessExecutor
from plait.cluster.groups.group_link import GroupLink
from pathlib import Path

async def main():
    link = await GroupLink.start(ProcessExecutor(), group_settings(Path(sys.argv[1])), print, print)
    print(link.pid, flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


def test_a_group_does_not_outlive_its_controller(tmp_path: Path) -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    parent.stdout.close()
    deadline_s = time.monotonic() + 120
    while os.path.exists(f"/proc/{pid}"):
        assert time.monotonic() < deadline_s
        time.sleep(0.05)
