"""kill -9 of the whole run at any point, then resume: the steps of an unbroken run, none twice and none skipped."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from plait.client.runs import run_file
from plait.config.load import effective_toml, load_settings
from plait.config.run import WorkerSettings
from plait.observe.events import StepCommitted
from plait.observe.log import read_events
from plait.state.records import list_steps
from plait.state.rundir import RunDirectory
from tests.runs import digests, tiny_settings, tiny_task

TASKS = (
    tiny_task("a", steps=6, evaluation={"questions": 4, "every_steps": 2}),
    tiny_task("b", steps=6, lora={"rank": 8}, sampling={"max_new_tokens": 16}),
)
THREADS = WorkerSettings(layout="shared", executor="thread", environment_processes=1)
"""Of the unbroken run, and of the end of those that are killed: they start no worker process, and give the same steps."""
RUN = """
import sys
from pathlib import Path
from plait.client.runs import run_file
from plait.config.load import load_settings
from plait.state.rundir import RunDirectory

directory = RunDirectory.open(Path(sys.argv[1]))
run_file(load_settings(directory.config), directory, resume=True, show_progress=False)
"""


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    folder = tmp_path_factory.mktemp("unbroken")
    settings = tiny_settings(folder, *TASKS, workers=THREADS.model_dump())
    directory = RunDirectory.create(folder / "runs", "whole", effective_toml(settings))
    run_file(settings, directory, show_progress=False)
    return directory


@pytest.mark.parametrize("seed", range(2))
def test_killed_at_random_points_and_resumed_it_trains_the_same_steps(tmp_path: Path, unbroken: RunDirectory, seed: int) -> None:
    settings = tiny_settings(unbroken.path.parent.parent, *TASKS)
    directory = RunDirectory.create(tmp_path, "broken", effective_toml(settings))
    chance, num_kills = random.Random(seed), 0
    for _ in range(3):
        process = subprocess.Popen([sys.executable, "-c", RUN, str(directory.path)], start_new_session=True)
        target = chance.randint(1, 4)
        _wait_for_steps(directory, target, process)
        time.sleep(chance.random() * 0.3)
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
            num_kills += 1
        process.wait()
    assert num_kills
    _wait_for_unlock(directory)
    threads = settings.model_copy(update={"workers": THREADS})
    run_file(threads, directory, resume=True, show_progress=False)
    for task in ("a", "b"):
        assert digests(directory, task) == digests(unbroken, task)
        assert list_steps(directory.steps_folder(task))[-1] == 6


def test_a_finished_run_resumes_to_nothing(unbroken: RunDirectory) -> None:
    before = [e for e in read_events(unbroken.events) if isinstance(e, StepCommitted)]
    assert run_file(load_settings(unbroken.config), unbroken, resume=True, show_progress=False) == "done"
    assert [e for e in read_events(unbroken.events) if isinstance(e, StepCommitted)] == before


def _wait_for_steps(directory: RunDirectory, target: int, process: subprocess.Popen[bytes]) -> None:
    deadline_s = time.monotonic() + 240
    before = len(_records(directory))
    while len(_records(directory)) < before + target and process.poll() is None:
        assert time.monotonic() < deadline_s, "no step in all that time"
        time.sleep(0.02)


def _records(directory: RunDirectory) -> list[tuple[str, int]]:
    return [(task, step) for task in ("a", "b") for step in list_steps(directory.steps_folder(task))[-1:] for step in range(step)]


def _wait_for_unlock(directory: RunDirectory) -> None:
    deadline_s = time.monotonic() + 120
    while directory.holder() is not None:
        assert time.monotonic() < deadline_s, "the lock outlives its process"
        time.sleep(0.05)
