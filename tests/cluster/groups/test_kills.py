"""kill -9 of processes of two groups, and then of their controller, at random moments of two jobs: the steps of an unbroken run."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil

from plait.client.runs import run_file
from plait.cluster.groups.factory import GROUP, PARKED_FOLDER
from plait.cluster.groups.group_link import GROUP_MODULE
from plait.config.load import effective_toml
from plait.config.run import RunSettings, WorkerSettings
from plait.models.tiny import make_tiny_model
from plait.observe.events import WorkerLost
from plait.observe.log import read_events
from plait.state.records import list_steps
from plait.state.rundir import RunDirectory
from tests.cluster.groups.jobs import SHAPES
from tests.runs import ENDLESS, digests, ended_at, full_task, tiny_settings, tiny_task

NUM_KILLS = 2
NUM_GROUPS = 2
DEVICE_BYTES = 24_000_000
"""Of each group: the largest of their four deployments, and hardly more."""
BELOW = {"host_bytes": 8_000_000, "disk_bytes": 1 << 30}
"""What they have off the device goes to the disk in part."""
OWN_THREADS = WorkerSettings(layout="shared", executor="thread", environment_processes=1)
"""Of the unbroken run, whose jobs have workers of their own: the same adapters, and no process to start."""
SEED = 11
DEADLINE_S = 400.0
RUN = """
import sys
from pathlib import Path
from plait.client.runs import run_file
from plait.config.load import load_settings
from plait.state.rundir import RunDirectory

directory = RunDirectory.open(Path(sys.argv[1]))
run_file(load_settings(directory.config), directory, show_progress=False)
"""


def test_whatever_is_killed_nothing_is_lost_or_doubled(tmp_path: Path) -> None:
    settings = two_jobs(tmp_path)
    broken = RunDirectory.create(tmp_path, "broken", effective_toml(settings))
    killed_in_turn(broken, random.Random(SEED))
    ends = {task: last_step(broken, task) + 2 for task in ("a", "b")}
    assert run_file(ended_at(settings, ends), broken, resume=True, show_progress=False) == "done"
    unbroken = ended_at(two_jobs(tmp_path, delay_s=0.001), ends).model_copy(update={"workers": OWN_THREADS})
    whole = RunDirectory.create(tmp_path, "whole", effective_toml(unbroken))
    assert run_file(unbroken, whole, show_progress=False) == "done"
    for task in ("a", "b"):
        assert digests(broken, task) == digests(whole, task)
        assert [step for step, _, _ in digests(broken, task)] == list(range(1, ends[task] + 1))
    assert not (broken.path / PARKED_FOLDER / GROUP).exists(), "what was parked is left on the disk"


def two_jobs(folder: Path, delay_s: float = 0.5) -> RunSettings:
    """An adapter on one base, all weights of another. Delays keep them from many steps while a killed group comes back."""
    for name in "ab":
        if not (folder / name).exists():
            make_tiny_model(folder / name, seed=ord(name), **SHAPES[name])
    tasks = [tiny_task("a", model="a", steps=ENDLESS), full_task("b", model="b", steps=ENDLESS)]
    for task in tasks:
        task["environment"] |= {"delay": {"kind": "fixed", "mean_s": delay_s}}
    models = [{"name": name, "path": str(folder / name), "max_context_tokens": 128} for name in "ab"]
    workers = {"layout": "multiplexed", "device_bytes": DEVICE_BYTES, "groups": NUM_GROUPS, "environment_processes": 1} | BELOW
    return tiny_settings(folder, *tasks, model=models[0], models=models[1:], workers=workers)


def killed_in_turn(directory: RunDirectory, chance: random.Random) -> None:
    """Groups `NUM_KILLS` times, then the controller; no group outlives it."""
    controller = subprocess.Popen([sys.executable, "-c", RUN, str(directory.path)], start_new_session=True)
    try:
        killed: list[int] = []
        for _ in range(NUM_KILLS):
            wait_for_steps(directory, chance.randint(1, 2), controller)
            time.sleep(chance.random() * 0.3)
            killed.append(chance.choice(groups_of(controller, killed)))
            os.kill(killed[-1], signal.SIGKILL)
        wait_for_steps(directory, chance.randint(1, 2), controller)
        last = groups_of(controller, killed)
        time.sleep(chance.random() * 0.3)
        assert controller.poll() is None, "the run was over before its controller was to be killed"
    finally:
        controller.kill()
        controller.wait()
    wait_for(lambda: not any(map(psutil.pid_exists, last)) and directory.holder() is None, "a group outlives its controller")
    lost = [event for event in read_events(directory.events) if isinstance(event, WorkerLost)]
    assert len({event.cause for event in lost}) == NUM_KILLS, "a loss goes unheard"
    assert len(lost) <= NUM_KILLS * 2, "a deployment hears of a loss twice, or of another group's"


def groups_of(controller: subprocess.Popen[bytes], killed: list[int]) -> list[int]:
    """Its groups' processes, when they are up again."""
    found: list[int] = []

    def is_up() -> bool:
        try:
            children = psutil.Process(controller.pid).children(recursive=True)
            found[:] = [child.pid for child in children if child.pid not in killed and GROUP_MODULE in child.cmdline()]
        except psutil.Error:  # One went away meanwhile.
            return False
        return len(found) == NUM_GROUPS

    wait_for(is_up, "a group does not come back")
    return sorted(found)


def wait_for_steps(directory: RunDirectory, num_more: int, controller: subprocess.Popen[bytes]) -> None:
    target = num_steps(directory) + num_more
    wait_for(lambda: num_steps(directory) >= target or controller.poll() is not None, "no step")
    assert controller.poll() is None, "the run was over too soon"


def num_steps(directory: RunDirectory) -> int:
    """Of all tasks, that are durable."""
    return sum(last_step(directory, task) for task in ("a", "b"))


def last_step(directory: RunDirectory, task: str) -> int:
    return max(list_steps(directory.steps_folder(task)), default=0)


def wait_for(condition, problem: str) -> None:  # type: ignore[no-untyped-def]
    deadline_s = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline_s, f"{problem} within {DEADLINE_S:g} s"
        time.sleep(0.02)
