"""A whole run whose training worker is a group of two ranks: killed, stopped, orphaned, and gone on with by one rank."""

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import psutil

from plait.client.runs import run_file
from plait.config.load import effective_toml
from plait.observe.events import WorkerLost
from plait.observe.log import read_events
from plait.state.records import list_steps, read_record
from plait.state.rundir import RunDirectory
from tests.client.test_full_runs import THREADS, run_all
from tests.client.test_resume import RUN
from tests.runs import ENDLESS, digests, ended_at, full_task, tiny_settings

TASK = full_task("f", steps=ENDLESS, group_size=6)
PASSES = {"micro_batch_tokens": 128}
TWO_RANKS = {"environment_processes": 1, "train_ranks": 2, "rank_timeout_s": 10.0, "max_restarts": 50}
DEADLINE_S = 240.0
FOLLOWER = "plait.cluster.ranks.follower"
Found = TypeVar("Found")


def test_ranks_that_die_and_hang_are_replaced_and_one_rank_goes_on_with_the_same_bits(tmp_path: Path) -> None:
    settings = tiny_settings(tmp_path, TASK, workers=TWO_RANKS, training=PASSES)
    directory = RunDirectory.create(tmp_path, "broken", effective_toml(settings))
    process = subprocess.Popen([sys.executable, "-c", RUN, str(directory.path)], start_new_session=True)
    try:
        family = torment(psutil.Process(process.pid), directory)
    finally:
        process.kill()
        process.wait()
    wait_for(lambda: not any(map(is_alive, family)))
    losses = [event.cause for event in read_events(directory.events) if isinstance(event, WorkerLost)]
    assert any("rank 1 of 2 has ended with signal SIGKILL" in loss for loss in losses)
    assert len(losses) >= 2
    num_steps = list_steps(directory.steps_folder("f"))[-1] + 2
    threads = ended_at(tiny_settings(tmp_path, TASK, workers=THREADS, training=PASSES), {"f": num_steps})
    assert run_file(threads, directory, resume=True, show_progress=False) == "done"
    whole = run_all(tmp_path / "whole", threads)
    assert digests(directory, "f") == digests(whole, "f")
    left, right = (read_record(run.steps_folder("f"), num_steps) for run in (directory, whole))
    assert left.optimizer_digest == right.optimizer_digest


def torment(run: psutil.Process, directory: RunDirectory) -> list[psutil.Process]:
    """Kill the second rank, stop that of the next group, and once a third group has trained give the whole family."""
    first = wait_for(lambda: follower(run, directory, 1))
    first.kill()
    second = wait_for(lambda: follower(run, directory, 2, first))
    second.suspend()
    wait_for(lambda: not is_alive(second))
    wait_for(lambda: follower(run, directory, 3, first, second))
    return run.children(recursive=True)


def follower(run: psutil.Process, directory: RunDirectory, step: int, *former: psutil.Process) -> psutil.Process | None:
    """The rank that is not the first, of a group that came after those of `former`, once the run has got to a step."""
    if list_steps(directory.steps_folder("f"))[-1:] < [step]:
        return None
    found = [child for child in run.children(recursive=True) if child not in former and FOLLOWER in words(child)]
    return found[0] if found else None


def words(process: psutil.Process) -> list[str]:
    """Of its command; none once it has ended."""
    try:
        return process.cmdline() if is_alive(process) else []
    except psutil.Error:
        return []


def is_alive(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def wait_for(find: Callable[[], Found | None]) -> Found:
    deadline_s = time.monotonic() + DEADLINE_S
    while not (found := find()):
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
    return found
