"""Whole runs whose workers are threads, or actors on a Ray cluster of several nodes; what carries them changes nothing."""

import asyncio
import contextlib
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import uvloop

from plait.client.runs import drive, open_run, run_file
from plait.cluster.executors import ray_executor
from plait.cluster.executors.carrier import Carrier, WorkerNeeds
from plait.cluster.executors.ray_carrier import RayCarrier
from plait.cluster.executors.ray_executor import RayExecutor
from plait.cluster.workers import Workers
from plait.config.load import effective_toml, load_settings
from plait.observe.events import AnyEvent, WorkerLost
from plait.observe.log import read_latest_events
from plait.state.records import list_steps
from plait.state.rundir import RunDirectory
from plait.tasks.driver import RunDriver
from plait.tasks.own_compute import OwnCompute
from plait.types.errors import ConfigError, WorkerFailure
from tests.cluster import test_store_deployment
from tests.cluster.executors.clusters import Nodes, cluster
from tests.cluster.executors.test_carriers import PROGRAM, frames_arrive_in_order_each_once, loss_is_told, with_worker
from tests.runs import ENDLESS, committed_steps, digests, ended_at, tiny_settings, tiny_task, worker_pids

TASKS = (tiny_task("a"), tiny_task("b", lora={"rank": 8}))
Digests = dict[str, list[tuple[int, str, float]]]
NEEDS = {"echo": WorkerNeeds(1)}


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    with cluster(num_nodes=2) as nodes:
        yield nodes


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def expected(folder: Path) -> Digests:
    """What processes give; one that is shared starts sooner than two, and gives the same (tests/client/test_runs.py)."""
    return all_digests(run(folder, layout="shared"))


def new_run(folder: Path, **workers: Any) -> RunDirectory:
    settings = tiny_settings(folder, *TASKS, workers={"environment_processes": 1, **workers})
    return RunDirectory.create(folder / "runs", settings.name, effective_toml(settings))


def run(folder: Path, on_event: Callable[[RunDriver, AnyEvent], None] = lambda driver, event: None, **workers: Any) -> RunDirectory:
    """To the end."""
    settings = tiny_settings(folder, *TASKS, workers={"environment_processes": 1, **workers})
    directory = new_run(folder, **workers)
    drivers: list[RunDriver] = []
    with open_run(settings, directory, resume=False) as opened:
        opened.listeners.append(lambda event: on_event(drivers[0], event))
        assert asyncio.run(drive(settings, directory, opened, drivers.append)) == "done"
    return directory


def all_digests(directory: RunDirectory) -> Digests:
    return {task["name"]: digests(directory, task["name"]) for task in TASKS}


def carriers(driver: RunDriver) -> dict[str, RayCarrier]:
    assert isinstance(driver.compute, OwnCompute)
    assert isinstance(driver.compute.workers, Workers)
    found = {name: client._carrier for name, client in driver.compute.workers._clients.items()}
    return {name: carrier for name, carrier in found.items() if isinstance(carrier, RayCarrier)}


def until(condition: Callable[[], object], timeout_s: float = 240) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.02)


def test_threads_give_the_same_adapters_also_after_an_interruption(folder: Path, expected: Digests) -> None:
    def interrupt(driver: RunDriver, event: AnyEvent) -> None:
        if getattr(event, "step", 0) == 1:
            raise ZeroDivisionError

    others = set(threading.enumerate())
    with pytest.raises(ZeroDivisionError):
        run(folder, interrupt, executor="thread")
    assert not [one for one in threading.enumerate() if one.name.startswith("plait-") and one not in others], "they have ended"
    directory = RunDirectory.open(max((folder / "runs").iterdir(), key=lambda path: path.stat().st_mtime))
    assert run_file(load_settings(directory.config), directory, resume=True, show_progress=False) == "done"
    assert all_digests(directory) == expected


def test_frames_to_an_actor_arrive_in_order_each_once(nodes: Nodes) -> None:
    """In the event loop that a server has."""
    with_worker(RayExecutor(nodes.address, "pack", NEEDS), frames_arrive_in_order_each_once, uvloop.new_event_loop)


def test_the_end_of_a_program_in_an_actor_is_told_with_its_cause(nodes: Nodes) -> None:
    with_worker(RayExecutor(nodes.address, "pack", NEEDS), lambda carrier: loss_is_told(carrier, "ZeroDivisionError"))


def test_an_actor_that_hangs_can_be_killed_and_had_its_variables(nodes: Nodes) -> None:
    async def use(carrier: Carrier) -> None:
        await carrier.send(b"variable")
        assert await carrier.receive() == b"set"
        await carrier.send(b"never look")
        carrier.kill()
        with pytest.raises(WorkerFailure, match="was killed"):
            await carrier.receive()
        await asyncio.to_thread(until, lambda: not psutil.pid_exists(carrier.pid))

    with_worker(RayExecutor(nodes.address, "pack", NEEDS), use)


def test_a_controller_still_stops_in_good_order(nodes: Nodes) -> None:
    """SIGTERM is its own, with Ray and afterwards; and one connection serves two executors."""

    async def main() -> None:
        asked = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, asked.set)
        executors = [RayExecutor(nodes.address, "pack", NEEDS) for _ in range(2)]
        started = [await executor.start(PROGRAM) for executor in executors]
        await stops(asked)
        assert not 0 < signal.getitimer(signal.ITIMER_REAL)[0] < 4, "nothing aborts the process later"
        await asyncio.gather(started[0].close(), started[1].send(b"still there"))
        await executors[0].close()
        assert await started[1].receive() == b"still there"
        await started[1].close()
        await executors[1].close()
        await stops(asked)

    async def stops(asked: asyncio.Event) -> None:
        asked.clear()
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(asked.wait(), 60)

    asyncio.run(asyncio.wait_for(main(), 240))


def test_a_node_without_the_folder_is_refused(nodes: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(carrier: Carrier) -> None:
        raise AssertionError

    written = ray_executor.write_probe(tmp_path)
    (tmp_path / Path(written.path).name).unlink()
    monkeypatch.setattr(ray_executor, "write_probe", lambda folder: written)
    with pytest.raises(ConfigError, match=r"does not see .* Put runs and data on a file system"):
        with_worker(RayExecutor(nodes.address, "pack", NEEDS, tmp_path), never)


def test_engines_on_two_nodes_share_a_store(nodes: Nodes, tmp_path: Path) -> None:
    """Their host tiers are their own; what a generation has left on one node it finds on the other."""
    plain, _ = test_store_deployment.run(tmp_path / "plain", {}, num_engines=1)
    ray = {"executor": "ray", "ray_address": nodes.address, "ray_placement": "spread"}
    segments, counts = test_store_deployment.run(tmp_path, test_store_deployment.FILES, workers=ray)
    assert segments == plain
    assert counts["store_hit_tokens"] > 0
    assert counts["store_failures"] == counts["corrupt_blocks"] == 0


def test_killed_actors_and_lost_nodes_change_nothing(
    nodes: Nodes, folder: Path, expected: Digests, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One actor is killed, then a node goes away; another joins as soon as the replacement is said to wait for one."""
    monkeypatch.setattr(ray_executor, "PATIENCE_S", 0.5)
    monkeypatch.setattr(ray_executor, "MORE_PATIENCE_S", 2.0)
    killed: list[str] = []

    class Joining(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "waits for a node of the Ray cluster with 1 CPU free" in record.getMessage() and len(killed) == 2:
                with contextlib.suppress(Exception):  # Ray gives a node 30 s to start; the next warning tries again.
                    killed.append(nodes.add())

    def disturb(driver: RunDriver, event: AnyEvent) -> None:
        step = getattr(event, "step", 0)
        if step == 1 and not killed:
            killed.append(on_head := next(name for name, one in carriers(driver).items() if one.node == nodes.head))
            os.kill(worker_pids(driver)[on_head], signal.SIGKILL)
        if step == 2 and len(killed) == 1 and len(now := carriers(driver)) == 2:
            killed.append(elsewhere := next(name for name, one in now.items() if one.node != nodes.head))
            pid = worker_pids(driver)[elsewhere]
            nodes.remove(now[elsewhere].node)
            until(lambda: not psutil.pid_exists(pid))  # An actor sees a moment later that its node has gone: enough for a step.

    handler = Joining()
    logging.getLogger("plait.cluster").addHandler(handler)
    try:
        directory = run(folder, disturb, executor="ray", ray_address=nodes.address, ray_placement="spread")
    finally:
        logging.getLogger("plait.cluster").removeHandler(handler)
    assert all_digests(directory) == expected
    lost = [event for event in read_latest_events(directory.events) if isinstance(event, WorkerLost)]
    assert [event.worker for event in lost] == killed[:2]
    assert len(killed) == 3, "the replacement went to the node that joined"
    assert all(f"worker {event.worker!r} (process" in event.cause for event in lost)


def test_a_worker_group_is_an_actor_that_may_be_killed(nodes: Nodes, folder: Path, expected: Digests) -> None:
    """It trains; rollouts have an actor of their own."""
    killed: list[int] = []

    def kill_once(driver: RunDriver, event: AnyEvent) -> None:
        if getattr(event, "step", 0) == 1 and not killed:
            assert isinstance(driver.compute, OwnCompute)
            pids = driver.compute.workers.pids
            assert set(pids) == {"rollout", "train"}
            assert nodes.worker_pids() >= set(pids.values())
            killed.append(pids["train"])
            os.kill(pids["train"], signal.SIGKILL)

    workers = {"layout": "multiplexed_training", "device_bytes": 1 << 30, "executor": "ray", "ray_address": nodes.address}
    directory = run(folder, kill_once, **workers)
    assert all_digests(directory) == expected
    lost = [event for event in read_latest_events(directory.events) if isinstance(event, WorkerLost)]
    assert [event.worker for event in lost] == ["train"]
    assert "worker 'group' (process" in lost[0].cause


def test_actors_end_with_a_killed_controller_and_the_run_goes_on(nodes: Nodes, folder: Path, expected: Digests) -> None:
    tasks = [task | {"steps": ENDLESS} for task in TASKS]
    settings = tiny_settings(folder, *tasks, workers={"environment_processes": 1, "layout": "shared"})
    file = folder / "run.toml"
    file.write_text(effective_toml(settings), encoding="utf-8")
    command = [sys.executable, "-m", "plait.cli.main", "run", str(file), "--name", "killed", "--runs", str(folder / "runs")]
    controller = subprocess.Popen([*command, "--ray", nodes.address, "--json"], stdout=subprocess.DEVNULL)
    directory = folder / "runs" / "killed"
    until(lambda: (directory / "events.jsonl").exists() and committed_steps(RunDirectory.open(directory), "a"))
    pids = nodes.worker_pids()
    assert len(pids) == 1
    controller.kill()
    controller.wait()
    until(lambda: not any(psutil.pid_exists(pid) for pid in pids))
    threads = tiny_settings(folder, *tasks, workers={"environment_processes": 1, "executor": "thread"})
    resumed = RunDirectory.open(directory)
    ends = {task: max(3, max(list_steps(resumed.steps_folder(task))) + 1) for task in expected}
    assert run_file(ended_at(threads, ends), resumed, resume=True, show_progress=False) == "done"
    assert {task: steps[:3] for task, steps in all_digests(resumed).items()} == expected
    assert {task: [step for step, _, _ in steps] for task, steps in all_digests(resumed).items()} == {
        task: list(range(1, end + 1)) for task, end in ends.items()
    }
